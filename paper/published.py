"""Settings as the published results know them, so that their lines can still be compared, and continued.

Their commands and their digests are of a time when mein had more settings, some of which had other names.
"""

import hashlib
import json
from typing import Any

from mein.config import Config

GONE = {"pretraining.reads": "stream", "fine_tuning.min_gain": 0.0}
"""Settings of published commands that mein no longer has, with the only value that they had there."""


def digest_of(config: Config, before: Config) -> str:
    """A short word that is equal for equal settings, whatever the machine, the seed, and where files lie.

    Defaults are left out of it, so that a setting that is new to mein changes no digest; and so are those of
    a language model where there is none, and what the grid sets for every main run.

    before: the settings of the run that a self-training round follows, or the same ones.
    """
    exclude: Any = {"runtime": True, "seed": True, "mixture": True, "expert": {"language_model", "from_run"}}
    if not config.expert.traits.has_language_model:
        exclude["pretraining"] = True
    settings = config.model_dump(mode="json", exclude=exclude, exclude_defaults=True)
    for stage, published in _stages(config).items():
        if published:
            settings[stage] = settings.get(stage, {}) | published
    if config.expert_training.epochs != before.expert_training.epochs:
        settings["expert"] = settings.get("expert", {}) | {"student_epochs": config.expert_training.epochs}
        settings["expert_training"]["epochs"] = before.expert_training.epochs
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode("utf-8")).hexdigest()[:12]


def _stages(config: Config) -> dict[str, dict[str, Any]]:
    """What is no setting any more but was one that differed from its default."""
    linear = {"decay": 1.0, "falls_to_zero": True, "clip": 1.0} if config.expert.traits.tunes_encoder else {}
    min_gain = {"min_gain": 0.0} if config.fine_tuning.patience is None else {}
    return {"expert_training": linear, "fine_tuning": linear | min_gain}
