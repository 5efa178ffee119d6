"""A language model as an artefact: made from raw text in a folder of its own, or inside a run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mein import ranks
from mein.artefacts import load_encoder, restore, seal
from mein.building import build_language_model, words_of_language_model
from mein.config import Config
from mein.data.corpus import Source
from mein.experts.language_model import LanguageModel
from mein.inference import choose_device
from mein.prepare import prepare_raw
from mein.progress import Reporter, Silence
from mein.seeds import derive_seed, numpy_generator
from mein.text.ragged import Ragged
from mein.text.store import Store
from mein.text.words import Words
from mein.training.checkpoint import load_facts, save_tensors
from mein.training.folder import RunFolder
from mein.training.loop import Runtime
from mein.training.pretraining import STAGE, Text, perplexity, train_language_model


def pretrain(
    config: Config,
    source: Source,
    name: str,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
) -> float:
    """Leave a language model of the source's text in a folder; its perplexity on held-out text."""
    reporter = reporter if ranks.is_first() else Silence()
    with folder.held():
        identity = config.model_dump(mode="json", exclude={"runtime"})
        with ranks.first_goes_ahead():
            folder.claim({"config": identity, "data": {"text": name}}, resume)
            prepare_raw(config, source, folder, reporter)
        runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
        stores = [Store.open(folder / f"encoded/{part}") for part in ("unlabeled", "held_out")]
        words = load_encoder(config, folder).words
        device = choose_device(config.runtime.device)
        language_model(config, words, stores[:1], stores[1], runtime, device)
        if ranks.is_first() and not folder.is_done:
            folder.write_json("labels.json", {"classes": [], "prior": []})
            seal(folder)
        return float(load_facts(folder / f"{STAGE}.safetensors")["perplexity"])


def language_model(
    config: Config,
    words: Words,
    texts: Sequence[Text],
    held_out: Text,
    runtime: Runtime,
    device: torch.device,
) -> LanguageModel:
    """The language model that an expert starts from: the one that is there, or one trained now."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "initial weights", STAGE))
        model = build_language_model(config, words).to(device)
    if config.expert.language_model is not None:
        words_of_language_model(config)  # refuses what does not fit
        restore(RunFolder(Path(config.expert.language_model)), STAGE, model)
        return model
    path = runtime.folder / f"{STAGE}.safetensors"
    if not ranks.exists(path):
        runtime.reporter.say("A language model learns from the text (*: the best epoch so far)")
        train_language_model(model, texts, held_out, config.pretraining, runtime, config.seed)
        model.embedding.settle()
        save_tensors(path, model.state_dict(), {"perplexity": perplexity(model, held_out)})
    ranks.barrier()  # the first may still be writing it
    restore(runtime.folder, STAGE, model)
    runtime.folder.drop(f"{STAGE}.checkpoint.safetensors")
    return model


class Rows:
    """Some rows of a text, as one shard: what stands in for a store where there is little text."""

    shard_count = 1

    def __init__(self, rows: Ragged) -> None:
        self.rows = rows

    def words(self, shard: int) -> Ragged:
        """All of them."""
        return self.rows


def held_apart(words: Ragged, seed: int) -> tuple[Rows, Rows]:
    """Nine tenths of some documents to learn from, and a tenth, one at least, to be judged on."""
    order = numpy_generator(seed, "held-out text").permutation(len(words))
    held_out = max(1, len(order) // 10)
    return Rows(words.take(np.sort(order[held_out:]))), Rows(words.take(np.sort(order[:held_out])))
