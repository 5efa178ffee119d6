"""Before line 1: what the expert starts from: word vectors, a language model, a finished run (--from-run).

Vectors and language models are learned from train and unlabeled text, never from dev. With --from-run, a
self-training round, the expert learns from the labels and from that run's predictions for unlabeled text.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mein.config import Config
from mein.data.corpus import Corpus
from mein.errors import ConfigError, InputError, RunError
from mein.evaluation.systems import MIXTURE
from mein.experts.base import Expert
from mein.experts.config import SELF_TRAINING_DOCUMENTS
from mein.experts.language_model import LanguageModel
from mein.model.artefacts import ArtefactContent, leave, restore
from mein.model.build import build_language_model, words_of_language_model
from mein.model.loading import Classifiers, FinishedRun
from mein.model.model import Model
from mein.run.documents import Split, UnlabeledTexts
from mein.run.state import UNLABELED_PARTS, Run
from mein.runtime import ranks
from mein.runtime.files import sha256_of
from mein.runtime.run_folder import RunFolder
from mein.runtime.seeds import derive_seed, numpy_generator
from mein.runtime.tensors import load_facts, load_tensors, save_tensors
from mein.store.store import Store
from mein.text.ragged import Ragged, concatenate, parted
from mein.text.vectors import word_vectors
from mein.text.words import Words
from mein.training.config import Supervision
from mein.training.language_model import STAGE, EncodedText, perplexity, train_language_model
from mein.training.loop import Runtime
from mein.training.stages import LabeledPart, drawn_rows

VECTORS = "vectors"


def prepare_start(run: Run, expert: Expert) -> None:
    """Give the expert what its kind starts from, learned from text without labels."""
    match run.config.expert.traits.starts_from:
        case "vectors":
            expert.start_from(_vectors(run))
        case "language model":
            expert.start_from(_language_model(run))


def _language_model(run: Run) -> LanguageModel:
    if run.has_imitators:
        texts: list[EncodedText] = [run.store(part) for part in ("train", "unlabeled")]
        held_out: EncodedText = run.store("held_out")
    else:
        learned_from, held_out = held_apart(run.store("train").words(), run.config.seed)
        texts = [learned_from]
    return language_model(run.config, run.indexer.words, texts, held_out, run.runtime, run.device)


def language_model(
    config: Config,
    words: Words,
    texts: Sequence[EncodedText],
    held_out: EncodedText,
    runtime: Runtime,
    device: torch.device,
) -> LanguageModel:
    """The language model that an expert starts from: the one that the settings name, or one trained now."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.seed, "initial weights", STAGE))
        model = build_language_model(config, words).to(device)
    if config.expert.language_model is not None:
        words_of_language_model(config)  # refuses one that does not fit
        restore(RunFolder(Path(config.expert.language_model)), STAGE, model)
        return model

    def trained() -> ArtefactContent:
        runtime.reporter.log("A language model learns from the text (*: the best epoch so far)")
        train_language_model(
            model, texts, held_out, config.pretraining.resolved(config.optimizer), runtime, config.seed
        )
        model.embedding.settle()
        return model.state_dict(), {"perplexity": perplexity(model, held_out)}

    leave(runtime.folder, STAGE, trained)
    restore(runtime.folder, STAGE, model)
    return model


class Rows:
    """Some rows of a text, as one shard: used instead of a store where there is little text."""

    shard_count = 1

    def __init__(self, rows: Ragged) -> None:
        self.rows = rows

    def words(self, shard: int) -> Ragged:
        """All of them."""
        return self.rows


def held_apart(words: Ragged, seed: int) -> tuple[Rows, Rows]:
    """Nine tenths of some documents to learn from, and a tenth, one at least, to evaluate on."""
    order = numpy_generator(seed, "held-out text").permutation(len(words))
    held_out = max(1, len(order) // 10)
    return Rows(words.take(np.sort(order[held_out:]))), Rows(words.take(np.sort(order[:held_out])))


def word_vectors_of(run: Run) -> np.ndarray:
    """Vectors (V, D), float32, of the words in training and unlabeled text."""
    parts = ("train", "unlabeled") if run.has_imitators else ("train",)
    rows = shards_at_random([run.store(part) for part in parts], run.config.seed)
    texts = (parted(some, run.row_size)[1] for some in rows)
    dim, seed = run.config.expert.embedding_dim, derive_seed(run.config.seed, VECTORS) % 2**32
    return word_vectors(texts, run.indexer.words.size, dim, seed)


def _vectors(run: Run) -> torch.Tensor:
    path = run.folder / f"{VECTORS}.safetensors"
    if not ranks.exists(path) and ranks.is_first():
        run.runtime.reporter.log("Word vectors are learned from the text")
        with run.folder.timed(VECTORS):
            vectors = word_vectors_of(run)
        save_tensors(path, {VECTORS: torch.from_numpy(vectors)}, {"run": run.folder.identity})
    ranks.barrier()  # the first may still be at it
    tensors, facts = load_tensors(path)
    if facts.get("run") != run.folder.identity:
        raise RunError(f"{path} belongs to another run: remove it and resume; vectors are learned again.")
    return tensors[VECTORS]


def shards_at_random(stores: Sequence[Store], seed: int) -> Iterator[Ragged]:
    """The words of all shards of some stores, one after another in a drawn order."""
    shards = [(store, shard) for store in stores for shard in range(store.shard_count)]
    for at in numpy_generator(seed, "shards for vectors").permutation(len(shards)):
        store, shard = shards[at]
        yield store.words(shard)


SELF_TRAINING = "self_training"  # the folder of a run with its teacher's predictions
NO_TEXT = "Self-training needs unlabeled text for the teacher to predict: give --unlabeled FILE."
PART_DOCUMENTS = 10_000  # in one of its files: what a kill may lose


def refuse_other_previous_run(config: Config, corpus: Corpus, labeled: Split) -> None:
    """Refuse a teacher that is no finished run, or learned from other labels: dev's may be among them."""
    if config.expert.from_run is None:
        return
    if corpus.unlabeled is None:
        raise ConfigError(NO_TEXT)
    folder = RunFolder(Path(config.expert.from_run))
    if not folder.is_done:
        raise RunError(
            f"{folder.path} holds no finished run: give --from-run the folder of one, or restore it."
        )
    if not FinishedRun.open(folder.path).config.expert.traits.learns:
        raise ConfigError(
            f"The run in {folder.path} was trained with given probabilities, which do not cover new text: "
            "use the same --soft-labels instead of --from-run."
        )
    known, classes = folder.read_json("labels.json"), list(labeled.labels.classes)
    if known.get("classes") != classes:
        raise InputError(
            f"The run in {folder.path} has the classes {known.get('classes')}, this one "
            f"{classes}: give both the same labels."
        )
    if known.get("documents") != labeled.digest:
        raise InputError(
            f"The run in {folder.path} has other labels than this one, or other weights or another split of "
            "them: give both the same --labeled, --dev, --seed, dev_fraction and weights."
        )


def has_previous_run(folder: RunFolder, config: Config) -> bool:
    """Whether the run of --from-run is still where it was."""
    if config.expert.from_run is None or not RunFolder(Path(config.expert.from_run)).is_done:
        return False
    try:
        return folder.read_json("config.json").get("from_run") == digest_of_previous_run(config)
    except OSError:
        return False


def digest_of_previous_run(config: Config) -> str:
    """A checksum of its weights."""
    assert config.expert.from_run is not None
    return sha256_of(Path(config.expert.from_run) / "mixture.safetensors")


def load_previous_run(config: Config, device: torch.device, *, knows_dev: bool) -> Model:
    """The mixture of the run of --from-run."""
    run = FinishedRun.open(Path(str(config.expert.from_run)))
    return Classifiers(run.folder, run.config, device, knows_dev=knows_dev).load(MIXTURE)


def stage_1(config: Config) -> Supervision:
    """How stage 1 is optimized."""
    expert = config.expert
    return config.expert_training.resolved(expert.traits, is_self_training=expert.is_self_training)


def training_part(run: Run, train_part: LabeledPart) -> LabeledPart:
    """Train; in self-training labels are probabilities (n, Y), followed by the teacher's predictions."""
    if run.config.expert.from_run is None:
        return train_part
    with run.folder.timed(SELF_TRAINING):
        if ranks.is_first():
            _label_by_previous_run(run)
        ranks.barrier()
    examples = [_read_part(path) for path in sorted((run.folder / SELF_TRAINING).glob("*.safetensors"))]
    certain = np.eye(run.classes, dtype=np.float32)[train_part.labels]
    labels = np.concatenate([certain, *(probs for _, probs in examples)])
    ones = (np.ones(len(probs), np.float32) for _, probs in examples)
    weights = np.concatenate([train_part.weights, *ones])
    words = concatenate([train_part.words, *(words for words, _ in examples)])
    return LabeledPart(words, labels, weights, np.zeros((0, len(labels), run.classes), np.float32))


def _label_by_previous_run(run: Run) -> None:
    """Write the teacher's predictions for some unlabeled documents, file after file."""
    if _unlabeled(run) == 0:
        raise ConfigError(NO_TEXT)
    documents = min(_unlabeled(run), SELF_TRAINING_DOCUMENTS)
    teacher = load_previous_run(run.config, run.device, knows_dev=False)
    (run.folder / SELF_TRAINING).mkdir(exist_ok=True)
    by = digest_of_previous_run(run.config)
    name = run.config.expert.from_run
    run.runtime.reporter.log(f"Before stage 1: {name} predicts {documents:,} unlabeled documents")
    with run.runtime.reporter.task("self-training", documents) as task:
        for number, texts in enumerate(_texts(run)):
            path = run.folder / SELF_TRAINING / f"{number:05}.safetensors"
            texts_digest = hashlib.blake2b(json.dumps(texts).encode("utf-8"), digest_size=16).hexdigest()
            facts = {"texts": texts_digest, "previous_run": by, "run": run.folder.identity}
            if not path.exists() or load_facts(path) != facts:
                words, probs = _predicted(run, teacher, texts)
                arrays = {"values": words.values, "offsets": words.offsets, "probs": probs}
                save_tensors(path, {name: torch.from_numpy(array) for name, array in arrays.items()}, facts)
            task.advance(len(texts))
    torch.cuda.empty_cache()  # its batches take gigabytes of a GPU, and training needs other sizes


def _predicted(run: Run, teacher: Model, texts: list[str]) -> tuple[Ragged, np.ndarray]:
    """What the expert reads of some texts, and p(y | X) (n, Y) by its teacher."""
    documents = teacher.encode(texts)
    probs = np.exp(teacher.mixture_log_probs(documents, teacher.alpha(documents))).astype(np.float32)
    reads_alike = teacher.indexer.fingerprint == run.indexer.fingerprint
    return (documents.words if reads_alike else run.indexer.encode_ragged(texts)[0]), probs


def _texts(run: Run) -> Iterator[list[str]]:
    """The unlabeled documents that the teacher predicts, those of one file at a time."""
    total = _unlabeled(run)
    is_drawn = drawn_rows(total, SELF_TRAINING_DOCUMENTS, run.config.seed)
    wanted = np.ones(total, dtype=bool) if is_drawn is None else is_drawn
    found: list[str] = []
    seen = 0
    for chunk in UnlabeledTexts(run.corpus.unlabeled, run.corpus.test_survey.known):
        rows = np.flatnonzero(wanted[seen : seen + len(chunk)])
        found += [chunk[row] for row in rows]
        seen += len(chunk)
        while len(found) >= PART_DOCUMENTS:
            yield found[:PART_DOCUMENTS]
            found = found[PART_DOCUMENTS:]
    if seen != total:
        raise InputError(
            f"{run.corpus.names.get('unlabeled', 'The unlabeled text')} has {seen:,} documents where "
            f"{total:,} were encoded: restore it, or choose another --out."
        )
    if found:
        yield found


def _unlabeled(run: Run) -> int:
    """How many unlabeled documents there are."""
    return sum(run.counts.get(part, 0) for part in UNLABELED_PARTS)


def _read_part(path: Path) -> tuple[Ragged, np.ndarray]:
    """What is in one file: documents, and the teacher's probabilities (n, Y)."""
    tensors: dict[str, Any] = {name: tensor.numpy() for name, tensor in load_tensors(path)[0].items()}
    return Ragged(tensors["values"], tensors["offsets"]), tensors["probs"]
