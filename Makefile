# `make demo` and `make test` need nothing but Python 3.11 or newer: both build .venv once and reuse it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP := 'pip>=25.1' # the first that knows --group
EXTRAS := transformers,hub,serve,skops
# What depends on the versions of other packages; warnings of old and new ones are no errors.
VERSIONS := -o filterwarnings=default tests/test_api.py tests/test_sklearn_contract.py tests/test_config.py \
	tests/cli tests/data tests/evaluation tests/hub tests/mixture tests/predict tests/serve tests/text

.PHONY: demo test format settings lint types unit slow browser lowest newest clean

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
	$(INSTALL) --constraint constraints.txt --group browser
	$(BIN)/pytest -m browser
	$(BIN)/pytest -m slow tests/serve/test_schemathesis.py

# Two tests know how new versions write a model's file: with old ones names differ, and a mapped file is lost.
OF_NEW := --deselect tests/hub/test_hub.py::test_weights_and_tokenizers_of_another_network_are_refused \
	--deselect tests/hub/test_layers.py::test_a_run_leaves_its_frozen_layers_alone_in_every_stage

# Each declared lowest version, as lowest.txt has them; torch alone is the one that is developed with.
lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --upgrade $(PIP)
	.venv-lowest/bin/python -m pip install --quiet --constraint lowest.txt --editable '.[$(EXTRAS)]' --group dev
	.venv-lowest/bin/python -m pytest --numprocesses auto $(VERSIONS) $(OF_NEW)

# The newest version of everything but torch, which may come with gigabytes of CUDA.
newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade $(PIP)
	grep '^torch==' constraints.txt > .venv-newest/torch.txt
	.venv-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager \
		--constraint .venv-newest/torch.txt --editable '.[$(EXTRAS)]' --group dev
	.venv-newest/bin/python -m pytest --numprocesses auto $(VERSIONS)

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# docs/settings.md, from the code.
settings: $(VENV)/installed
	$(BIN)/python scripts/settings_page.py

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade $(PIP)
	$(INSTALL) --constraint constraints.txt --editable '.[transformers,serve,ray,skops]' --group dev
	touch $@

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache
