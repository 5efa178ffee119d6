"""The configuration: where a value comes from, what is refused, and that a written one reads back."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mein.config import (
    COMMON,
    PRESETS,
    Config,
    as_toml,
    json_schema,
    load_config,
    make_config,
    names,
    parse_overrides,
)
from mein.errors import ConfigError
from mein.experts.config import KINDS
from mein.runtime.settings import Settings
from scripts.settings_page import PAGE, page


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_then_preset_then_file_then_overrides(tmp_path: Path) -> None:
    file = put(tmp_path / "a.toml", "[expert]\nhidden_dim = 9\nmlp_dim = 5\n")
    config = load_config("small", file, {"expert.mlp_dim": 3, "seed": 7})
    assert config.expert.mlp_dropout == Config().expert.mlp_dropout  # nobody but the default names it
    assert config.expert.embedding_dim == 128 != Config().expert.embedding_dim  # the preset
    assert config.expert.hidden_dim == 9  # the file, over the preset
    assert (config.expert.mlp_dim, config.seed) == (3, 7)  # the override, over the file


def test_without_a_preset_a_file_changes_the_defaults(tmp_path: Path) -> None:
    config = load_config(file=put(tmp_path / "a.toml", "seed = 3\n"))
    assert config == Config(seed=3)


def test_the_preset_fits_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert load_config() == load_config("small")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert load_config() == load_config("full")


def test_the_config_of_a_run_is_a_config(tmp_path: Path) -> None:
    config = load_config("small", overrides={"imitators.windows": [2], "seed": 5})
    content = {"mein": 3, "config": config.model_dump(mode="json"), "data": {"labeled": "train.csv"}}
    assert load_config(file=put(tmp_path / "config.json", json.dumps(content))) == config


def test_overrides_are_toml_and_bare_words_are_strings() -> None:
    lines = ["seed=3", "expert_training.averaging = 0.5", "imitators.windows=[1, 2]", "words.lowercase=false"]
    assert parse_overrides([*lines, "runtime.device=cuda:1", 'columns.text="a=b"']) == {
        "seed": 3,
        "expert_training.averaging": 0.5,
        "imitators.windows": [1, 2],
        "words.lowercase": False,
        "runtime.device": "cuda:1",
        "columns.text": "a=b",
    }


def test_none_stands_for_no_value() -> None:
    assert (
        load_config("small", overrides={"expert_training.patience": "none"}).expert_training.patience is None
    )


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("sed", "seed"),
        ("expert.hiden_dim", "expert.hidden_dim"),
        ("expert.mlp_dropuot", "expert.mlp_dropout"),
        ("channel", "imitators.channels"),
        ("fine_tuning.learningrate", "fine_tuning.learning_rate"),
        ("windows", "imitators.windows"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_config("small", overrides={key: 1})
    assert str(refusal.value) == f"Unknown setting {key!r}: did you mean {nearest!r}?"


SIZES = (
    "expert.embedding_dim",
    "expert.hidden_dim",
    "expert.mlp_dim",
    "imitators.embedding_dim",
    "imitators.channels",
)
OUT_OF_RANGE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(SIZES, (0, -1, 1.5, "x", None)),
    "expert.mlp_dropout": (-0.1, 1.0, float("nan")),
    "imitators.windows": ([], [-1], [1.5], 3),
    "words.max_words": (0,),
    "words.max_length": (0, 1),
    "pieces.vocabulary_size": (3,),
    "dev_fraction": (0, 1),
    "seed": (-1,),
    "runtime.workers": (0,),
    "runtime.checkpoint_seconds": (-1, float("nan")),
    **{
        f"{stage}.{name}": values
        for stage in ("expert_training", "imitator_training", "fine_tuning")
        for name, values in {
            "epochs": (-1, 1.5),
            "learning_rate": (0, -1e-3, float("nan"), float("inf")),
            "batch_documents": (0,),
        }.items()
    },
    **dict.fromkeys(("expert_training.patience", "fine_tuning.patience"), (0, -1)),
    "expert_training.averaging": (-0.1, 1, float("nan")),
}


@pytest.mark.parametrize(("key", "value"), [(key, v) for key, values in OUT_OF_RANGE.items() for v in values])
def test_a_value_out_of_range_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^Setting {key}(\[0\])? is .*, but should [a-z ]+.*\.$"):
        load_config("small", overrides={key: value})


def test_every_number_has_bounds() -> None:
    """A setting that takes any number at all would let a nonsensical one through."""

    def unbounded(section: Settings, prefix: str = "") -> list[str]:
        found = []
        for name, field in type(section).model_fields.items():
            value = getattr(section, name)
            if isinstance(value, Settings):
                found += unbounded(value, f"{name}.")
            elif "int" in str(field.annotation) or "float" in str(field.annotation):
                is_bounded = (
                    field.metadata or "Field" in str(field.annotation) or "Ge" in str(field.annotation)
                )
                found += [] if is_bounded or "Gt" in str(field.annotation) else [prefix + name]
        return found

    assert unbounded(Config()) == []


def test_there_are_few_settings() -> None:
    """92 before those that nobody sets became constants; one more needs a reason, and this number raised."""
    assert len(list(names())) <= 52
    assert set(COMMON) < set(names())


def test_the_common_settings_are_a_file_on_top_of_their_preset(tmp_path: Path) -> None:
    for preset in PRESETS:
        text = as_toml(load_config(preset), preset)
        assert load_config(file=put(tmp_path / "a.toml", text)) == load_config(preset)
        assert text.count(" = ") == 1 + len(COMMON)


def objects(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the schema says of every setting, by dotted name."""
    found: dict[str, dict[str, Any]] = {}
    for name, field in schema["properties"].items():
        inside = schema["$defs"].get(field.get("$ref", "").rpartition("/")[2], {}).get("properties", {})
        found |= {f"{name}.{inner}": of for inner, of in inside.items()} or {name: field}
    return found


def test_the_schema_has_every_setting_with_its_meaning_and_default() -> None:
    described = objects(json_schema())
    assert set(described) == {"preset", *names()}
    assert all(field["description"] for field in described.values())
    assert all("default" in described[name] for name in names())
    assert described["expert.kind"]["enum"] == list(KINDS)


def test_the_schema_takes_what_the_presets_hold_and_refuses_what_mein_refuses() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    checks = jsonschema.Draft202012Validator(json_schema())
    for preset in PRESETS:
        for text in (as_toml(load_config(preset)), as_toml(load_config(preset), preset)):
            assert list(checks.iter_errors(tomllib.loads(text))) == []
    wrong = [{"sed": 1}, {"expert": {"kind": "lstn"}}, {"imitators": {"windows": []}}, {"preset": "huge"}]
    for content in [*wrong, {"words": {"max_length": 1}}, {"words": {"max_length": "all"}}]:
        assert list(checks.iter_errors(content))


def test_the_page_of_settings_is_up_to_date() -> None:
    """If not: make settings."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_a_config_never_changes() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().seed = 3


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    overrides = {
        "dev_fraction": 0.25,
        "class_weight": "balanced",
        "columns.text": 'a "quoted" \\ naïve\tcolumn',
        "imitators.windows": [0, 7],
        "expert_training.patience": None,
        "fine_tuning.learning_rate": 1e-7,
    }
    config = load_config("small", overrides=overrides)
    text = as_toml(config)
    assert load_config(file=put(tmp_path / "a.toml", text)) == config
    assert max(map(len, text.splitlines())) <= 80
    settings = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    described = [line for line in text.splitlines() if line.startswith("#")]
    assert (
        len(described)
        > len(settings)
        == sum(len(section) if isinstance(section, dict) else 1 for section in tomllib.loads(text).values())
    )


def test_a_section_is_not_a_setting() -> None:
    with pytest.raises(
        ConfigError, match=r"^'expert' is a section, not a setting: set what is in it, such as"
    ):
        make_config({"expert": 3})
