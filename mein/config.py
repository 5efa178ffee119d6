"""The whole configuration: nests what each room declares. Defaults, then a file, then overrides."""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field, ValidationError

from mein.data.readers import ColumnsConfig
from mein.errors import ConfigError
from mein.experts.lstm import ExpertConfig
from mein.imitators.reference import ImitatorsConfig
from mein.mixture import MixtureConfig
from mein.settings import Settings
from mein.text.pieces import PiecesConfig
from mein.text.words import WordsConfig
from mein.training.stages import ImitationConfig, SupervisedConfig

PRESETS = ("small", "full", "paper")


class FineTuningConfig(SupervisedConfig):
    """How the mixture is tuned on the labels."""

    learning_rate: float = 1e-4
    """Of the first step."""


class RuntimeConfig(Settings):
    """Where a run works; none of it changes the result."""

    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes a GPU where there is one."""
    workers: int | None = None
    """Processes that encode text; none takes one for each core."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    """A stage saves where it stands this often."""


class Config(Settings):
    """Everything that a run depends on besides its data."""

    seed: int = 0
    """All randomness comes from it."""
    dev_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the labels kept for choosing; none: a tenth, but 500 where a quarter allows it."""
    class_weight: Literal["balanced"] | None = None
    """balanced: rare classes weigh as much as common ones in the supervised loss."""
    removes_test_overlap: bool = True
    """Whether unlabelled documents that are also in the test set are left out, as in the paper."""
    columns: ColumnsConfig = ColumnsConfig()
    """Names of columns in files."""
    words: WordsConfig = WordsConfig()
    """The expert's vocabulary."""
    pieces: PiecesConfig = PiecesConfig()
    """The imitators' vocabulary."""
    expert: ExpertConfig = ExpertConfig()
    """The expert network."""
    imitators: ImitatorsConfig = ImitatorsConfig()
    """The imitator networks."""
    mixture: MixtureConfig = MixtureConfig()
    """The mixture."""
    expert_training: SupervisedConfig = SupervisedConfig()
    """Stage 1: labels."""
    imitator_training: ImitationConfig = ImitationConfig()
    """Stage 2: unlabelled text."""
    fine_tuning: FineTuningConfig = FineTuningConfig()
    """Stage 3: labels again."""
    runtime: RuntimeConfig = RuntimeConfig()
    """The machine."""


def load_config(
    preset: str | None = None, file: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Defaults, then the preset, then the file, then overrides by dotted name; the last word wins.

    >>> load_config("small", overrides={"imitators.windows": [1, 2], "seed": 7}).imitators.windows
    (1, 2)
    """
    if preset is None and file is None:
        preset = "full" if torch.cuda.is_available() else "small"
    settings: dict[str, Any] = {}
    if preset is not None:
        _merge(settings, _read_preset(preset))
    if file is not None:
        _merge(settings, _read_file(file))
    for key, value in ({} if overrides is None else overrides).items():
        _merge(settings, _nested(key, value))
    return make_config(settings)


def make_config(settings: Mapping[str, Any]) -> Config:
    """Check settings and freeze them; refuse an unknown key and offer the nearest."""
    try:
        return Config.model_validate(_none_for_none(dict(settings)))
    except ValidationError as problem:
        raise ConfigError(_sentence(problem)) from problem


def _read_preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise ConfigError(f"Unknown preset {name!r}: choose one of {', '.join(PRESETS)}.")
    text = resources.files("mein").joinpath("configs", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as problem:
        raise ConfigError(f"Cannot read the config {path}: {problem.strerror}.") from problem
    except ValueError as problem:
        raise ConfigError(f"The config {path} cannot be parsed: {problem}.") from problem
    if "config" in content and "mein" in content:  # the config.json of a run
        content = content["config"]
    assert isinstance(content, dict)
    return content


def parse_overrides(lines: Sequence[str]) -> dict[str, Any]:
    """The settings of `key=value` lines; values are TOML, and a bare word is a string."""
    settings: dict[str, Any] = {}
    for line in lines:
        key, equals, text = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"Cannot read the setting {line!r}: write key=value.")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = text.strip()
    return settings


def _nested(key: str, value: Any) -> dict[str, Any]:
    *sections, name = key.split(".")
    settings = {name: value}
    for section in reversed(sections):
        settings = {section: settings}
    return settings


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _none_for_none(value: Any) -> Any:
    """TOML has no null: the word "none" stands for it."""
    if isinstance(value, dict):
        return {key: _none_for_none(inner) for key, inner in value.items()}
    return None if value == "none" else value


def _sentence(problem: ValidationError) -> str:
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"Setting {where} is {first['input']!r}: {first['msg'].lower()}."
    section: type[BaseModel] = Config
    for part in first["loc"][:-1]:
        inner = section.model_fields[str(part)].annotation
        assert isinstance(inner, type)
        section = inner
    names = list(section.model_fields)
    nearest = difflib.get_close_matches(str(first["loc"][-1]), names, n=1, cutoff=0.0)[0]
    return f"Unknown setting {where!r}: did you mean {nearest!r}?"


def as_toml(config: Config) -> str:
    """The configuration as a commented file that `load_config` reads back."""
    lines = ["# A configuration of mein: every setting, with its value and what it means."]
    plain = {n: f for n, f in Config.model_fields.items() if not _is_section(config, n)}
    lines += _toml_fields(config, list(plain))
    for name in Config.model_fields:
        if _is_section(config, name):
            section = getattr(config, name)
            lines += ["", f"[{name}]  # {Config.model_fields[name].description}"]
            lines += _toml_fields(section, list(type(section).model_fields))
    return "\n".join(lines) + "\n"


def _is_section(config: Config, name: str) -> bool:
    return isinstance(getattr(config, name), Settings)


def _toml_fields(section: Settings, names: list[str]) -> list[str]:
    lines = []
    for name in names:
        value = getattr(section, name)
        shown = json.dumps("none" if value is None else value, ensure_ascii=False)
        lines += [f"# {type(section).model_fields[name].description}", f"{name} = {shown}"]
    return lines
