"""The settings that all runs of a request share: which may be set, and when two requests are alike."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mein.config import Config
from mein.errors import ConfigError
from mein.experiments.cells import OWNED


def shared_settings(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides by dotted name, tables taken apart; refuse those by which the cells of a grid differ."""
    settings = _flat(overrides)
    for name in OWNED:
        if name in settings:
            raise ConfigError(
                f"{name} is the grid's own to set: leave out --set {name}=..., "
                "and choose cells by --grid, --experts and --seed."
            )
    return settings


def digest_of(config: Config) -> str:
    """A short word that is equal for equal settings, whatever the machine, the seed, and where files lie.

    Defaults are left out of it, so that a setting that is new to mein changes no digest; and so are those of
    a language model where there is none.
    """
    exclude: Any = {"runtime": True, "seed": True, "expert": {"language_model", "student_of"}}
    if not config.expert.has_language_model:
        exclude["pretraining"] = True
    told = config.model_dump(mode="json", exclude=exclude, exclude_defaults=True)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode("utf-8")).hexdigest()[:12]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
        flat |= inner
    return flat
