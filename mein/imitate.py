"""A run whose imitators learn from a labelled store: it shares all else with a finished run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mein.building import HUB
from mein.config import Config, load_config
from mein.data.corpus import Corpus, corpus_of_files
from mein.data.files import find_files
from mein.errors import ConfigError, InputError, RunError
from mein.files import link_or_copy
from mein.label import refuse_other_classes
from mein.labeled import LabeledTexts, read_labeled
from mein.lexicon import LEXICON_OF_TRAIN
from mein.prepare import encode_labeled, held_out_count
from mein.progress import Reporter
from mein.ranks import first_goes_ahead
from mein.run import identity_of
from mein.steps import FinishedRun
from mein.text.excerpt import drawn_from_few_shards, write_excerpt
from mein.text.store import Store, link_store
from mein.training.folder import RunFolder
from mein.tutor import TUTOR, hears_lexicon

SHARED = ("words.txt", "pieces.model", "vocabularies.json", "labels.json", "expert.safetensors")
OF_THE_TUTOR = (TUTOR, LEXICON_OF_TRAIN)  # shared too where a lexicon teaches
FREE = ("imitators", "imitator_training", "mixture", "fine_tuning", "runtime")  # settings that may differ

Paths = Mapping[str, str | None]  # labeled, dev, test: where they lie now, or none for where they lay


def begin(
    like: FinishedRun, store: Store, config: Config, corpus: Corpus, out: Path, reporter: Reporter
) -> None:
    """Make `out` a run that stands where `like` stood before its imitators, with the store for its text.

    Some documents of the store are held out, to judge the imitators by; it goes on with `train_run`.
    """
    labeled = _same_labels(like, config, corpus)
    folder = RunFolder(out)
    with first_goes_ahead(), folder.held():
        folder.claim(identity_of(config, corpus), resume=(folder / "config.json").exists())
        if (folder / "prepared.json").exists():
            return
        for name in SHARED:
            link_or_copy(like.folder / name, folder / name)
        for name in OF_THE_TUTOR if hears_lexicon(config) and (like.folder / TUTOR).exists() else ():
            link_or_copy(like.folder / name, folder / name)
        for path in filter(Path.is_file, (like.folder / HUB).rglob("*")):
            link_or_copy(path, folder.path / path.relative_to(like.folder.path))
        encode_labeled(folder, like.encoder(), labeled, reporter)
        rows = drawn_from_few_shards(store, held_out_count(len(store)), config.seed)
        write_excerpt(folder / "encoded/held_out", store, rows)
        link_store(folder / "encoded/unlabeled", store, rows.tolist())
        counts = like.folder.read_json("prepared.json") | {"removed": 0, "unlabeled_in_test": 0}
        counts |= {"held_out": len(rows), "unlabeled": len(store) - len(rows)}
        folder.rewind("data", 0)
        folder.record("data", **counts)
        folder.write_json("prepared.json", counts)


def _same_labels(like: FinishedRun, config: Config, corpus: Corpus) -> LabeledTexts:
    """The labelled documents, once they have proved to be those of the run."""
    if not all((like.folder / name).exists() for name in (*SHARED, "prepared.json")):
        raise RunError(
            f"{like.folder.path} holds a classifier without its expert and its text: "
            "give the folder that `mein train --out` wrote."
        )
    labeled = read_labeled(config, corpus)
    if labeled.digest != like.folder.read_json("labels.json")["documents"]:
        raise InputError(
            f"{corpus.names['labeled']} holds other labelled documents than those of {like.folder.path}: "
            "give the files that it was trained with."
        )
    return labeled


def ready_store(like: FinishedRun, store: Store) -> Store:
    """The store, once it has proved to be encoded and labelled for a run."""
    like.refuse_strange(store)
    if store.classes is None:
        raise RunError(
            f"{store.place} is not wholly labelled: "
            f"label it with `mein label {store.place} --by {like.folder.path}`."
        )
    refuse_other_classes(store, like.labels.classes)
    if len(store) < 2:
        raise InputError(f"{store.place} holds {len(store)} documents: encode some more text.")
    return store


def settings_like(like: FinishedRun, overrides: Mapping[str, Any]) -> Config:
    """The settings of a run, with others for its imitators and its mixture."""
    for name in overrides:
        if name.split(".")[0] not in FREE:
            raise ConfigError(
                f"{name} cannot be set, for it is shared with {like.folder.path}: "
                f"set something in {', '.join(FREE)}."
            )
    return load_config(file=like.folder / "config.json", overrides=overrides)


def corpus_like(like: FinishedRun, store: str, given: Paths) -> Corpus:
    """The labelled documents that a run was made from, and the store instead of its text."""
    names = like.folder.read_json("config.json").get("data", {})
    paths = {part: names.get(part) if path is None else path for part, path in given.items()}
    for part, path in paths.items():
        if given[part] is None and path is not None and not is_there(path):
            raise InputError(
                f"The run in {like.folder.path} was made with {path}, which is not there: "
                f"give its {part} documents with --{part}."
            )
    if paths["labeled"] is None:
        raise InputError(
            f"{like.folder / 'config.json'} names no labelled documents: give them with --labeled."
        )
    corpus = corpus_of_files(paths["labeled"], None, paths["dev"], paths["test"], like.config.columns)
    return replace(corpus, names=corpus.names | {"unlabeled": store})


def is_there(path: str) -> bool:
    """Whether documents can be found under a name."""
    try:
        return bool(find_files(path))
    except InputError:
        return False
