"""What runs on a data set share: its encoded text, and the language models that experts start from."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mein.building import open_reader, words_of_language_model
from mein.config import Config
from mein.data.corpus import Corpus
from mein.errors import InputError, RunError
from mein.experiments.branch import share
from mein.experiments.cells import TEACHERS, Cell
from mein.experiments.experiment import OF_TEXT, Experiment
from mein.experiments.seconds import seconds_of
from mein.files import sha256_of
from mein.inference import choose_device
from mein.labeled import read_labeled
from mein.prepare import prepare
from mein.pretrain import language_model
from mein.run import identity_of
from mein.text.store import Store
from mein.text.words import Words
from mein.training.folder import RunFolder
from mein.training.loop import Runtime

OF_LANGUAGE_MODELS = (*OF_TEXT, "pretraining")  # settings that one depends on, besides its sizes
SIZES = ("kind", "embedding_dim", "hidden_dim", "normalizes_embeddings")  # of an expert and its own
SEEN = "seen.json"  # the checksums of files that runs have seen
LEARNED = 0.9  # of so many raw documents; the others are held out, or in the test set
TEXTS = (("train", "unlabeled"), ("held_out",))  # what a language model learns from and is judged on


@contextmanager
def under_work() -> Iterator[None]:
    """Name the option that folders of runs come from here, where `mein train` has another."""
    try:
        yield
    except RunError as problem:
        raise type(problem)(str(problem).replace("--out", "--work")) from problem


def encoded_text(experiment: Experiment, cell: Cell, work: Path, corpus: Corpus) -> RunFolder:
    """The encoded text that all runs on a data set share; one whose expert has its own words has its own."""
    main = experiment.config(cell.dataset, cell.expert, cell.seed)
    name = "text" if main.expert.reads_words else f"text-{TEACHERS.get(cell.expert, cell.expert)}"
    # The transformer lies beside its text, in the folder hub, with the layers that are read.
    cut = "" if main.expert.layers is None else f"-of-{main.expert.layers}-layers"
    folder = RunFolder(work / (name + cut))
    own = {} if main.expert.reads_words else {"expert.model": main.expert.model}
    config = experiment.shared_config(cell.dataset, OF_TEXT, seed=0, **own)
    with folder.held(waits=True):
        folder.claim(identity_of(config, corpus), resume=(folder / "config.json").exists())
        _refuse_other_files(folder, corpus)
        labeled = read_labeled(config, corpus)
        reader = open_reader(main, folder, labeled.labels.classes, choose_device(config.runtime.device))
        with folder.timed("encoding"):
            counts = prepare(config, corpus, labeled, folder, experiment.reporter, reader)
    if counts.get("unlabeled", 0) == 0:
        raise InputError(
            f"{corpus.names['unlabeled']} holds no document that imitators can learn from: "
            "put more raw text there."
        )
    return folder


def _refuse_other_files(folder: RunFolder, corpus: Corpus) -> None:
    """Refuse raw text or a test set that is not what runs here have seen (labels prove themselves)."""
    seen = {part: sha256_of(Path(corpus.names[part])) for part in ("unlabeled", "test")}
    if (folder / SEEN).exists():
        for part, digest in folder.read_json(SEEN).items():
            if digest != seen[part]:
                raise InputError(
                    f"{corpus.names[part]} is not the file that the runs beside {folder.path} have seen: "
                    "put that back, or give another --work and another --results."
                )
    else:
        folder.write_json(SEEN, seen)


def cells_that_fit(experiment: Experiment, cells: Sequence[Cell]) -> list[Cell]:
    """The cells less those that want more unlabelled documents than their data set has; say which."""
    fitting = [cell for cell in cells if cell.unlabeled is None]
    places: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.unlabeled is not None:
            places.setdefault(experiment.place(cell.dataset, cell.seed), []).append(cell)
    for place, own in places.items():
        corpus = experiment.corpus(own[0].dataset, own[0].seed)
        text = encoded_text(experiment, own[0], experiment.work / place, corpus)
        most = int(text.read_json("prepared.json")["unlabeled"])
        too_many = sorted({n for cell in own if (n := cell.unlabeled or 0) * LEARNED > most})
        fitting += [cell for cell in own if cell.unlabeled not in too_many]
        if too_many:
            told = ", ".join(f"{amount:,}" for amount in too_many)
            experiment.reporter.say(
                f"{place} has {most:,} unlabelled documents to learn from: {told} are left out."
            )
    return fitting


def expert_config(
    experiment: Experiment,
    cell: Cell,
    work: Path,
    text: RunFolder,
    corpus: Corpus,
    teacher: RunFolder | None = None,
) -> Config:
    """The settings of an expert, whose language model is trained first if it is not there yet."""
    named = {} if teacher is None else {"expert.student_of": str(teacher.path)}
    config = experiment.config(cell.dataset, cell.expert, cell.seed, **named)
    if not config.expert.has_language_model:
        return config
    folder = RunFolder(work / f"language-model-{config.expert.kind}-{config.expert.embedding_dim}")
    sizes = {f"expert.{name}": getattr(config.expert, name) for name in SIZES}
    own = experiment.shared_config(cell.dataset, OF_LANGUAGE_MODELS, **sizes, seed=0)
    with folder.held(waits=True):
        share(text, folder, own, corpus, "text")
        if not (folder / "language_model.safetensors").exists():
            texts, held_out = ([Store.open(folder / f"encoded/{part}") for part in parts] for parts in TEXTS)
            words = Words.load(folder / "words.txt")
            runtime = Runtime(folder, experiment.reporter, own.runtime.checkpoint_seconds)
            with folder.timed("language_model"):
                language_model(own, words, texts, held_out[0], runtime, choose_device(own.runtime.device))
    named["expert.language_model"] = str(folder.path)
    found = experiment.config(cell.dataset, cell.expert, cell.seed, **named)
    words_of_language_model(found)  # refuses what does not fit
    return found


def shared_seconds(config: Config, text: RunFolder) -> float:
    """How long what an expert shares with other runs took: its text, and its language model if it has one."""
    path = config.expert.language_model
    return seconds_of(text) + (0.0 if path is None else seconds_of(RunFolder(Path(path))))
