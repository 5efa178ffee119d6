"""What an expert knows before a label: a language model or vectors, of train and raw text, never of dev."""

from collections.abc import Iterator, Sequence

import torch

from mein import ranks
from mein.experts.average import AverageExpert
from mein.experts.base import Expert
from mein.experts.lstm import LSTMExpert
from mein.pretrain import held_apart, language_model
from mein.seeds import derive_seed, numpy_generator
from mein.text.ragged import Ragged
from mein.text.store import Store
from mein.text.vectors import word_vectors
from mein.training.checkpoint import load_tensors, save_tensors
from mein.training.pretraining import Text
from mein.workspace import Run

VECTORS = "vectors"


def prepare_start(run: Run, expert: Expert) -> None:
    """Give the expert what it knows before it has seen a label."""
    if isinstance(expert, AverageExpert):
        _start_from_vectors(run, expert)
    elif run.config.expert.has_language_model:
        assert isinstance(expert, LSTMExpert)
        _start_from_language_model(run, expert)


def _start_from_language_model(run: Run, expert: LSTMExpert) -> None:
    if run.is_taught:
        texts: list[Text] = [run.store(part) for part in ("train", "unlabeled")]
        held_out: Text = run.store("held_out")
    else:
        learned_from, held_out = held_apart(run.store("train").words(), run.config.seed)
        texts = [learned_from]
    with run.folder.timed("language_model"):
        words = run.encoder.words
        expert.take_over(language_model(run.config, words, texts, held_out, run.runtime, run.device))


def _start_from_vectors(run: Run, expert: AverageExpert) -> None:
    path = run.folder / f"{VECTORS}.safetensors"
    if not ranks.exists(path) and ranks.is_first():
        run.runtime.reporter.say("Word vectors are made of the text")
        parts = ("train", "unlabeled") if run.is_taught else ("train",)
        with run.folder.timed(VECTORS):
            texts = shards_at_random([run.store(part) for part in parts], run.config.seed)
            dim, seed = run.config.expert.embedding_dim, derive_seed(run.config.seed, VECTORS) % 2**32
            vectors = word_vectors(texts, run.encoder.words.size, dim, seed)
        save_tensors(path, {VECTORS: torch.from_numpy(vectors)}, {})
    ranks.barrier()  # the first may still be at it
    expert.start_from(load_tensors(path)[0][VECTORS])


def shards_at_random(stores: Sequence[Store], seed: int) -> Iterator[Ragged]:
    """The words of all shards of some stores, one after another in a drawn order."""
    shards = [(store, shard) for store in stores for shard in range(store.shard_count)]
    for at in numpy_generator(seed, "shards for vectors").permutation(len(shards)):
        store, shard = shards[at]
        yield store.words(shard)
