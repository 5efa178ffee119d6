"""The configuration: the settings of each room, from presets, files, and overrides; commented TOML out."""

import difflib
import json
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from mein.data.columns import ColumnsConfig
from mein.errors import ConfigError, shown
from mein.experts.config import KINDS, LARGEST_TRANSFORMER_RATE, ExpertConfig, PerturbationConfig
from mein.imitators.config import ImitatorsConfig
from mein.mixture.config import MixtureConfig
from mein.runtime.device import refuse_unknown_device
from mein.runtime.files import PIPES, expanded, read_regular
from mein.runtime.settings import Settings
from mein.runtime.tensors import check_version
from mein.text.config import PiecesConfig, WordsConfig
from mein.training.config import (
    ExpertTrainingConfig,
    FineTuningConfig,
    ImitatorTrainingConfig,
    OptimizerConfig,
    PretrainingConfig,
)

COMMON = (
    "seed",
    "class_weight",
    "words.max_length",
    "expert.kind",
    "expert.training",
    "expert.model",
    "imitators.windows",
    "expert_training.epochs",
    "expert_training.learning_rate",
    "imitator_training.epochs",
)
"""The settings that people change, which `mein init` writes; with --all it writes the others too."""
PRESETS = ("small", "full", "paper", "paper-large", "transformer", "frozen")


class RuntimeConfig(Settings):
    """Where and how a run works; the result does not depend on it."""

    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto: a GPU if there is one."""
    workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of processes that encode text; none: one per core."""
    checkpoint_seconds: float = Field(default=30.0, ge=0.0, le=10**9, allow_inf_nan=False)
    """Seconds between two checkpoints of a stage."""


class Config(Settings):
    """Everything that a run depends on besides its data."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of all randomness."""
    dev_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the labels held out for validation, except by linear and frozen; none: a quarter, 500 from
    2,000 labels on, 10% from 5,000 on."""
    class_weight: Literal["balanced"] | None = None
    """balanced: rare classes count as much as common ones in the supervised loss; none: not weighted."""
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
    perturbation: PerturbationConfig = PerturbationConfig()
    """Adversarial training."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Shared by all stages."""
    pretraining: PretrainingConfig = PretrainingConfig()
    """Pre-training of language models and transformers."""
    expert_training: ExpertTrainingConfig = ExpertTrainingConfig()
    """Stage 1: labels."""
    imitator_training: ImitatorTrainingConfig = ImitatorTrainingConfig()
    """Stage 2: unlabeled text."""
    fine_tuning: FineTuningConfig = FineTuningConfig()
    """Stage 3: labels again."""
    runtime: RuntimeConfig = RuntimeConfig()
    """The machine."""


def load_config(
    preset: str | None = None,
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    encoder: str | None = None,
) -> Config:
    """Defaults, preset, file, and overrides by dotted name, in this order; later ones win.

    encoder: a Hugging Face encoder, for the expert `frozen` unless another kind with an encoder is named.

    >>> load_config("small", overrides={"imitators.windows": [1, 2], "seed": 7}).imitators.windows
    (1, 2)
    """
    if encoder is not None:
        preset, overrides = _with_encoder(encoder, preset, file, overrides or {})
    return make_config(merged(preset, file, overrides))


def _with_encoder(
    encoder: str, preset: str | None, file: Path | None, overrides: Mapping[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """The preset and the overrides that make an encoder the expert."""
    chosen = {**overrides, "expert.model": expanded(encoder)}
    if preset is None and file is None and "expert.kind" not in chosen:
        return "frozen", chosen
    kind = KINDS.get(str(merged(preset, file, chosen)["expert"].get("kind")))
    if kind is None or not kind.has_encoder:
        if "expert.kind" in chosen:
            raise ConfigError(
                f"expert.kind is {chosen['expert.kind']!r}, which has no encoder: remove it, or {encoder!r}."
            )
        chosen["expert.kind"] = "frozen"
    return preset, chosen


def merged(preset: str | None, file: Path | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings in the order of `load_config`, by section, not yet checked."""
    if preset is None and file is None:
        _validated(merged("small", None, overrides))  # a refusal need not wait for torch
        preset = default_preset()
    settings: dict[str, Any] = {}
    if preset is not None:
        _merge(settings, _read_preset(preset))
    if file is not None:
        _merge(settings, _on_its_base(_read_file(file)))
    for key, value in ({} if overrides is None else overrides).items():
        if str(key).count(".") > 1:
            raise ConfigError(f"Unknown setting {shown(key)}: write section.name, such as 'expert.kind'.")
        _merge(settings, _nested(key, value))
    return settings


def default_preset() -> str:
    """The preset for this machine; to ask torch for a GPU takes a second, so that it is asked last."""
    import torch

    return "full" if torch.cuda.is_available() else "small"


def make_config(settings: Mapping[str, Any]) -> Config:
    """Check settings and freeze them; refuse an unknown key and offer the nearest."""
    config = _validated(settings)
    contradiction = config.expert.contradiction()
    if contradiction is not None:
        raise ConfigError(contradiction)
    if config.expert.traits.tunes_encoder:
        _refuse_large_rate(config)
    return config


def _validated(settings: Mapping[str, Any]) -> Config:
    """Check each setting by itself."""
    try:
        with _explaining_depth("Cannot read the settings"):
            config = Config.model_validate(_none_for_none(dict(settings)))
    except ValidationError as problem:
        raise ConfigError(_sentence(problem)) from problem
    refuse_unknown_device(config.runtime.device)
    return config


def _refuse_large_rate(config: Config) -> None:
    """Refuse a learning rate that is too large for a pre-trained network."""
    rate = config.expert_training.learning_rate
    if rate > LARGEST_TRANSFORMER_RATE:
        raise ConfigError(
            f"expert_training.learning_rate is {rate}, too large for a pre-trained transformer: "
            "use --preset transformer, or set it to 1e-4 or less."
        )


def _read_preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise ConfigError(f"Unknown preset {name!r}: choose one of {', '.join(PRESETS)}.")
    text = resources.files("mein").joinpath("configs", f"{name}.toml").read_text(encoding="utf-8")
    return _on_its_base(tomllib.loads(text))


def _on_its_base(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings on top of the preset that they name by `preset`, if they do."""
    base = settings.pop("preset", None)
    found = {} if base is None else _read_preset(base)
    _merge(found, settings)
    return found


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = (path.read_bytes() if str(path).startswith(PIPES) else read_regular(path)).decode("utf-8")
        with _explaining_depth(f"Cannot read the config {path}"):
            content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as problem:
        raise ConfigError(
            f"Cannot read the config {path} ({problem.strerror}): write one with `mein init`."
        ) from problem
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError(f"The config {path} cannot be parsed ({problem}): fix it there.") from problem
    if not isinstance(content, dict):
        raise ConfigError(
            f"The config {path} holds a {type(content).__name__}: give it sections of settings."
        )
    is_of_run = isinstance(content.get("config"), dict) and "mein" in content
    if is_of_run:
        check_version(path, content["mein"])
    return content["config"] if is_of_run else content


def parse_overrides(lines: Sequence[str]) -> dict[str, Any]:
    """The settings of `key=value` lines; values are TOML, and a bare name is a string."""
    settings: dict[str, Any] = {}
    for line in lines:
        key, equals, text = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"Cannot read the setting {shown(line)}: write key=value.")
        try:
            with _explaining_depth(f"Cannot read the setting {shown(line)}"):
                settings[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = text.strip()
    return settings


@contextmanager
def _explaining_depth(what: str) -> Iterator[None]:
    """One sentence for what is nested too deeply, or has too many digits, for Python to read it."""
    try:
        yield
    except RecursionError as problem:
        raise ConfigError(f"{what}: nested too deeply; give sections of settings.") from problem
    except ValueError as problem:
        if type(problem) is not ValueError:  # parsers and pydantic have their own
            raise
        raise ConfigError(f"{what}: a number has too many digits; give a smaller one.") from problem


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
    """TOML has no null: the string "none" stands for it."""
    if isinstance(value, dict):
        return {key: _none_for_none(inner) for key, inner in value.items()}
    return None if isinstance(value, str) and value == "none" else value


def _sentence(problem: ValidationError) -> str:
    """One sentence about the first thing that is wrong."""
    first = problem.errors()[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])[1:]
    if first["type"] == "extra_forbidden":
        sections = (name for name in Config.model_fields if is_section(name))
        nearest = _nearest(where, sections if isinstance(first["input"], dict) else names())
        return f"Unknown setting {shown(where)}: did you mean {nearest!r}?"
    if first["type"] == "model_type":
        inside = next(name for name in names() if name.startswith(f"{where}."))
        return f"{where!r} is a section, not a setting: set what is in it, such as {inside!r}."
    if first["type"] == "invalid_key" or (first["type"] == "string_unicode" and where not in names()):
        return f"Unknown setting {shown(first['input'])}: give a name such as 'expert.kind'."
    if first["type"] == "int_parsing_size":
        first["msg"] = "should be a smaller number"
    wish = first["msg"].removeprefix("Input ").removeprefix("Tuple ")
    wish = wish.split(", unable to")[0].split(" after validation")[0]
    return f"Setting {shown(where, quoted=False)} is {shown(first['input'])}, but {wish}."


def names() -> Iterator[str]:
    """Every setting by its dotted name, in the order of the file."""
    for name, field in Config.model_fields.items():
        inside = type(field.default).model_fields if is_section(name) else {}
        yield from (f"{name}.{inner}" for inner in inside) if inside else [name]


def _nearest(wanted: str, names: Iterable[str]) -> str:
    """The name most similar to the wanted one, in full and in its last part."""

    def likeness(name: str) -> float:
        last = difflib.SequenceMatcher(None, wanted.split(".")[-1], name.split(".")[-1]).ratio()
        return difflib.SequenceMatcher(None, wanted, name).ratio() + last

    return max(names, key=likeness)


def is_section(name: str) -> bool:
    """Whether a name of the configuration stands for a group of settings."""
    return isinstance(Config.model_fields[name].default, Settings)


def as_toml(config: Config, preset: str | None = None) -> str:
    """The configuration as a commented file that `load_config` reads back.

    preset: leave everything else than COMMON to this preset, on which the configuration is built.
    """
    if preset is None:
        about, rest = "every setting", "what is removed keeps its default"
    else:
        about, rest = "what is changed the most", "`mein init --all` writes the others"
    lines = [
        f"# A configuration of mein: {about}, its value, and its meaning.",
        '# "none" stands for no value. Use it with `mein train --config`;',
        f"# {rest}.",
        "",
    ]
    lines += [] if preset is None else [f'preset = "{preset}"']
    shown = [name for name in names() if preset is None or name in COMMON]
    lines += _toml_fields(config, [name for name in shown if "." not in name])
    for section in filter(is_section, Config.model_fields):
        inside = [name.partition(".")[2] for name in shown if name.startswith(f"{section}.")]
        if inside:
            lines += ["", f"[{section}]  # {Config.model_fields[section].description}"]
            lines += _toml_fields(getattr(config, section), inside)
    return "\n".join(lines) + "\n"


def _toml_fields(section: Settings, names: list[str]) -> list[str]:
    lines = []
    for name in names:
        value = getattr(section, name)
        shown = json.dumps("none" if value is None else value, ensure_ascii=False)
        meaning = str(type(section).model_fields[name].description)
        lines += textwrap.wrap(
            meaning, 80, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
        )
        lines.append(f"{name} = {shown}")
    return lines


def json_schema() -> dict[str, Any]:
    """The JSON schema of a config file, for editors: names, types, bounds, defaults, and meanings."""
    schema = Config.model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        for field in section["properties"].values():
            if {"type": "null"} in field.get("anyOf", []):
                field["anyOf"].append({"const": "none"})  # TOML has no null
    meaning = "Preset that the settings of this file change."
    schema["properties"] = {"preset": {"enum": list(PRESETS), "description": meaning}} | schema["properties"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
