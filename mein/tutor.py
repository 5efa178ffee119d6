"""Who teaches the imitators of a run: its expert, or its expert and its lexicon together.

In the paper it is the expert. But one that has learned from a few hundred labels errs often, and words
know what it has not learned yet; so imitators may learn what both say, mixed as closed gates are before
their tuning. Somebody else's word, which has not learned from these labels, is taught as it is.
"""

import torch

from mein import ranks
from mein.artefacts import damaged, verify
from mein.config import Config
from mein.experts.base import Expert
from mein.files import sha256_of
from mein.label import Tutor
from mein.lexicon import LEXICON_OF_TRAIN, load_lexicon
from mein.loading import load_variant
from mein.training.folder import RunFolder
from mein.training.gates import open_gates
from mein.workspace import Run, learned_lexicon

EXPERT = "expert.safetensors"
TUTOR = "tutor.json"  # in a run folder: what the lexicon's word counts, of which lexicon beside which expert


def learned_tutor(run: Run, expert: Expert) -> tuple[Tutor, str]:
    """The tutor of a run under way, from tutor.json or fitted on dev, and a checksum of who it is.

    The lexicon is that of train: imitators must not have heard of dev's labels, by which they are judged.
    """
    if not hears_lexicon(run.config):
        return Tutor(expert), author_of(run.folder, run.config)
    lexicon = learned_lexicon(run)
    if not ranks.exists(run.folder / TUTOR):
        z, said = run.dev_word(expert), lexicon.log_probs(run.store("dev").pieces())
        gates, tau = open_gates(z, said[None], run.labeled.dev_ids, run.labeled.dev_weights)
        if ranks.is_first():
            of = {name: sha256_of(run.folder / name) for name in (EXPERT, LEXICON_OF_TRAIN)}
            run.folder.write_json(TUTOR, {"gate": gates[0], "tau": tau, "sha256": of})
        ranks.barrier()
    return _tutor(run.folder, run.config, expert), author_of(run.folder, run.config)


def load_tutor(folder: RunFolder, config: Config, device: torch.device) -> Tutor:
    """The tutor of a finished run."""
    return _tutor(folder, config, load_variant(folder, config, "expert", device).expert)


def author_of(folder: RunFolder, config: Config) -> str:
    """A checksum of who labels for a run; none where the folder has no expert of its own."""
    path = folder / (TUTOR if hears_lexicon(config) else EXPERT)
    return sha256_of(path) if path.exists() else ""


def _tutor(folder: RunFolder, config: Config, expert: Expert) -> Tutor:
    if not hears_lexicon(config):
        return Tutor(expert)
    verify(folder, TUTOR, (EXPERT, LEXICON_OF_TRAIN))
    facts = folder.read_json(TUTOR)
    try:
        gate, tau = float(facts["gate"]), float(facts["tau"])
    except (KeyError, TypeError, ValueError) as problem:
        raise damaged(folder / TUTOR) from problem
    return Tutor(expert, load_lexicon(folder / LEXICON_OF_TRAIN).with_gate(gate).logits, tau)


def hears_lexicon(config: Config) -> bool:
    """Whether a lexicon teaches beside the expert."""
    is_wanted = config.imitator_training.learns_lexicon and config.mixture.hears_lexicon
    return is_wanted and config.expert.kind != "teacher"
