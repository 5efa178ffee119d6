"""Requests made from our own schema, right ones and wrong ones, find no answer that it does not declare."""

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")
pytest.importorskip("schemathesis", reason="needs the group `browser`")
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS, load_all_checks

from mein.model.loading import load_model
from mein.serve.app import make_app
from mein.serve.schema import ServeSettings
from tests.support import tiny

LIMITS = ServeSettings(texts=5, text_characters=200)
EXAMPLES = 60


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "a-token"])
@pytest.mark.filterwarnings("ignore")  # of libraries beneath it
def test_nothing_is_found_against_our_own_schema(tmp_path: Path, token: str | None) -> None:
    tiny.run(tmp_path)
    app = make_app(load_model(tmp_path, "cpu"), LIMITS, token)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)
    modes = schemathesis.GenerationMode
    asked: Counter[str] = Counter()
    load_all_checks()
    # A schema cannot specify which bytes are a CSV with a text column.
    lenient = [CHECKS.get_one("positive_data_acceptance")]
    for operation in (result.ok() for result in schema.get_all_operations()):
        has_shape = operation.path in ("/predict", "/explain")
        for mode in (modes.POSITIVE, modes.NEGATIVE) if has_shape else (modes.POSITIVE,):

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            def ask(case: schemathesis.Case) -> None:
                asked[case.path] += 1
                case.call_and_validate(
                    headers=headers, excluded_checks=lenient if case.path == "/label" else []
                )

            ask()
    assert set(asked) == {"/predict", "/explain", "/label", "/health", "/metrics"}
    assert asked["/predict"] > EXAMPLES
