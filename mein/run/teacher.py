"""Before line 2: the teacher of the imitators, and its soft labels p(y | X) beside every shard of a store.

In the paper the teacher is the expert. But an expert with a few hundred labels has a high error, and a
lexicon knows n-grams that it has not learned yet; so the teacher may be both, mixed as closed gates are
before their tuning. Given probabilities, which learned nothing from these labels, are used unchanged.

Several ranks share the shards; several processes of one machine may share a rank's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch.nn import functional

from mein.config import Config
from mein.data.labels import Label
from mein.errors import RunError
from mein.experts.base import Expert
from mein.mixture.gates import open_gates
from mein.mixture.inference import TorchNetworks, logits_in_batches
from mein.mixture.lexicon import LEXICON, LEXICON_OF_TRAIN, Lexicon, load_lexicon
from mein.model.artefacts import TEACHER, damaged
from mein.model.loading import Classifiers
from mein.run.state import Run
from mein.runtime import ranks
from mein.runtime.files import sha256_of
from mein.runtime.processes import answers, cores, start_worker
from mein.runtime.progress import Reporter
from mein.runtime.ranks import barrier, is_first, rank, world
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import digest_in
from mein.store.files import (
    EXPERT_COLUMN,
    LABELS,
    label_file,
    labeled_by,
    read_soft_labels,
    seal_labels,
    write_soft_labels,
)
from mein.store.place import damaged_file
from mein.store.store import Store
from mein.text.ragged import Ragged

PART = 1_000  # documents that a lexicon predicts at a time
KERNELS = 64  # that oneDNN keeps, one for each shape of a batch: more would grow with the documents
DIED = (
    "A process that labels documents died (exit code {code}), possibly out of memory; "
    "label with --workers 1: what was labeled is kept."
)


@dataclass(frozen=True)
class Teacher:
    """The teacher of the imitators: softmax(z) of the expert, or of z plus a lexicon's logits."""

    expert: Expert
    beside: Callable[[Ragged], np.ndarray] | None = None
    """A lexicon's logits (n, Y) of the pieces of documents."""
    tau: float = 1.0
    """Both are divided by it."""

    def __str__(self) -> str:
        return "the expert" if self.beside is None else "expert and lexicon"

    def probs(self, z: np.ndarray, pieces: Ragged) -> np.ndarray:
        """p(y | X) (n, Y), float32, of documents with these pieces and the expert's logits z (n, Y)."""
        if self.beside is None:
            return functional.softmax(torch.from_numpy(z), dim=1).numpy()
        parts = np.array_split(np.arange(len(z)), 1 + len(z) // PART)  # a lexicon takes 100 bytes a piece
        together = (z + np.concatenate([self.beside(pieces.take(rows)) for rows in parts])) / self.tau
        return functional.softmax(torch.from_numpy(together), dim=1).float().numpy()


LabelShards = Callable[[Sequence[int]], Iterator[int]]
"""Labels shards; yields how many more documents are done."""
LabelingEngine = Callable[[Teacher, Store, Sequence[Label], str, Sequence[int]], Iterator[int]]
"""The same on other machines; yields each shard when it is done."""


def label_documents(
    teacher: Teacher, stores: Iterable[Store], classes: Sequence[Label], by: str, reporter: Reporter
) -> None:
    """Label what is not labeled yet, in this process, without dropout."""
    for store in stores:
        label_store(store, classes, by, partial(label_here, teacher, store, classes, by), reporter)
    torch.cuda.empty_cache()  # a batch takes gigabytes of a GPU, and training needs other sizes


def label_store(
    store: Store, classes: Sequence[Label], by: str, work: LabelShards, reporter: Reporter
) -> int:
    """Label the shards without labels, verify the others, and seal the store.

    Returns how many shards other teachers labeled. Every rank must call, and takes its share of the shards.
    """
    if store.has_column(EXPERT_COLUMN):
        refuse_other_classes(store, classes)
        _refuse_other_authors(store, by)
        return 0
    there, unknown = set(store.place.names()), 0
    lacking = []
    with reporter.task("labeling", len(store)) as task:
        for shard in range(rank(), store.shard_count, world()):
            if label_file(store.shards[shard].file) in there:
                unknown += _verified(store, shard, classes, by)
                task.advance(store.shard_lengths[shard])
            else:
                lacking.append(shard)
        for documents in work(lacking):
            task.advance(documents)
    barrier()
    if is_first():
        seal_labels(store.place, store.shards, classes)
    barrier()
    store.look_for_labels()
    return ranks.total(unknown)


def write_label_file(teacher: Teacher, store: Store, classes: Sequence[Label], by: str, shard: int) -> None:
    """Label one shard."""
    for _ in label_here(teacher, store, classes, by, [shard]):
        pass


def label_here(
    teacher: Teacher, store: Store, classes: Sequence[Label], by: str, shards: Sequence[int]
) -> Iterator[int]:
    """Label shards in this process; yields the documents of each batch."""
    for shard in shards:
        words = store.words(shard)
        z = np.zeros((len(words), teacher.expert.classes), np.float32)
        yield from logits_in_batches(teacher.expert, words, z)
        probs = teacher.probs(z, store.pieces(shard))
        with store.place.writing(label_file(store.shards[shard].file)) as path:
            write_soft_labels(path, probs, classes, by)


def label_in_processes(
    run: Path, store: Store, by: str, workers: int, shards: Sequence[int]
) -> Iterator[int]:
    """Label shards in processes that each load a run's teacher and share the cores; yields per shard."""
    threads = max(1, cores() // workers)
    environment = {"OMP_NUM_THREADS": str(threads), "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(KERNELS)}
    arguments = [str(run), str(store.place), by]
    started = [start_worker("mein.run.label_worker", arguments, environment) for _ in range(workers)]
    for found in answers(started, shards, _send, DIED):
        yield store.shard_lengths[found["shard"]]


def _send(shard: int, stream: IO[bytes]) -> None:
    stream.write(f"{shard}\n".encode())
    stream.flush()


def _verified(store: Store, shard: int, classes: Sequence[Label], by: str) -> bool:
    """Refuse a damaged label file or another expert's; whether its author is unknown."""
    file = label_file(store.shards[shard].file)
    with store.place.reading(file) as path:
        read_soft_labels(path, f"{store.place}/{file}", store.shards[shard].documents, classes)
        author = labeled_by(path)
    if author not in (None, by):
        raise RunError(
            f"{store.place}/{file} holds the soft labels of another expert: "
            "label with the run that they are from, or remove the label files."
        )
    return author is None


def _refuse_other_authors(store: Store, by: str) -> None:
    """Refuse a list of another teacher's label files that contradicts them: it decides what is learned."""
    for file, author in store.label_authors.items():
        if author != by:
            with store.place.reading(file) as path:
                if labeled_by(path) != author:
                    raise damaged_file(f"{store.place}/{LABELS}")


def refuse_other_classes(store: Store, classes: Sequence[Label]) -> None:
    """Refuse a store that was labeled with classes other than these."""
    if store.classes is not None and list(map(str, store.classes)) != list(map(str, classes)):
        raise RunError(
            f"{store.place} is labeled with the classes {', '.join(map(str, store.classes))}, not "
            f"{', '.join(map(str, classes))}: give the run that it was labeled for."
        )


EXPERT = "expert.safetensors"


Fitted = Callable[[], tuple[float, float]]
"""The gate of a teacher's lexicon, and tau."""


def learned_teacher(run: Run, expert: Expert, fitted: Fitted | None = None) -> tuple[Teacher, str]:
    """The teacher of a run under way, from teacher.json or fitted on dev, or as given, and its checksum.

    The lexicon is that of train: imitators must not learn the labels of dev, on which they are validated.
    """
    folder = run.folder
    if not teaches_with_lexicon(run.config):
        return Teacher(expert), author_of(folder, run.config)
    if not ranks.exists(folder / TEACHER):
        lexicon = run.lexicon
        if fitted is None:
            z, log_probs = run.dev_logits(expert), lexicon.log_probs(run.store("dev").pieces())
            gates, tau = open_gates(z, log_probs[None], run.labeled.dev_ids, run.labeled.dev_weights)
            gate = float(gates[0])
        else:
            gate, tau = fitted()
        if ranks.is_first():
            of = {name: digest_in(folder / name) for name in (EXPERT, lexicon_file(run.config))}
            folder.write_json(TEACHER, {"gate": gate, "tau": tau, "sha256": of})
        ranks.barrier()
    return _with_lexicon(folder, run.config, expert, run.lexicon), author_of(folder, run.config)


def load_teacher(folder: RunFolder, config: Config, device: torch.device) -> Teacher:
    """The teacher of a finished run."""
    networks = Classifiers(folder, config, device, knows_dev=False).load("expert").networks
    assert isinstance(networks, TorchNetworks)
    if not teaches_with_lexicon(config):
        return Teacher(networks.expert)
    return _with_lexicon(folder, config, networks.expert, load_lexicon(folder / lexicon_file(config)))


def author_of(folder: RunFolder, config: Config) -> str:
    """A checksum of the teacher of a run; empty where the folder has no expert of its own."""
    path = folder / (TEACHER if teaches_with_lexicon(config) else EXPERT)
    return sha256_of(path) if path.exists() else ""


def lexicon_file(config: Config) -> str:
    """The lexicon that teaches: of train, or of all labels where all teach in folds."""
    return LEXICON if config.expert.traits.is_fitted else LEXICON_OF_TRAIN


def _with_lexicon(folder: RunFolder, config: Config, expert: Expert, lexicon: Lexicon) -> Teacher:
    of_labels = lexicon_file(config)
    facts = folder.read_json(TEACHER)
    try:
        gate, tau, written = float(facts["gate"]), float(facts["tau"]), dict(facts["sha256"])
    except (KeyError, TypeError, ValueError) as problem:
        raise damaged(folder / TEACHER) from problem
    if any(digest_in(folder / name) != written.get(name) for name in (EXPERT, of_labels)):
        raise RunError(
            f"{folder / TEACHER} was made with another {EXPERT} or {of_labels}: restore all three "
            f"from a copy of the run, or, if it is not finished, remove {TEACHER} to make it again."
        )
    return Teacher(expert, lexicon.with_gate(gate).logits, tau)


def teaches_with_lexicon(config: Config) -> bool:
    """Whether the teacher is expert and lexicon."""
    kind = config.expert.traits
    if kind.is_fitted:
        return config.mixture.has_lexicon
    is_wanted = config.imitator_training.reads_labeled and config.mixture.has_lexicon
    return is_wanted and kind.learns and not kind.has_encoder
