# `make demo` and `make test` need nothing but Python 3.11 or newer: both build .venv once and reuse it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test format settings lint types unit slow browser clean

demo: $(VENV)/installed
	$(BIN)/mein demo --out runs/demo

test: lint types unit

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/installed
	$(BIN)/mypy

unit: $(VENV)/installed
	$(BIN)/pytest --numprocesses auto

slow: $(VENV)/installed
	$(BIN)/pytest -m slow

# The page and the report in a real browser, and the server against its own schema.
browser: $(VENV)/installed
	command -v chromium || apt-get install -y chromium || true
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,browser]'
	$(BIN)/pytest -m browser
	$(BIN)/pytest -m slow tests/serve/test_schemathesis.py

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# docs/settings.md, from the code.
settings: $(VENV)/installed
	$(BIN)/python scripts/settings_page.py

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
