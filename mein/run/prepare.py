"""Before line 1 of Algorithm 1: the folder is the run's, vocabularies are learned, text is encoded."""

import shutil
from collections.abc import Sequence
from typing import Any

from mein.config import Config
from mein.data.corpus import Corpus
from mein.data.soft_labels import SoftLabels, SoftLabelTable
from mein.errors import MeinError, RunError
from mein.evaluation.systems import control_names
from mein.mixture.inference import choose_device
from mein.model.artefacts import HUB, load_indexer
from mein.model.build import open_reader, open_soft_labels
from mein.model.pretrained import digest_of_language_model, words_of_language_model
from mein.run.documents import Split, UnlabeledTexts, check_sources
from mein.run.parts import encode_parts
from mein.run.state import Run
from mein.run.warm_start import digest_of_previous_run, refuse_other_previous_run
from mein.runtime import ranks
from mein.runtime.progress import Reporter
from mein.runtime.run_folder import RunFolder
from mein.store.writing import Spread
from mein.training.loop import Runtime


def prepare(
    config: Config,
    corpus: Corpus,
    folder: RunFolder,
    reporter: Reporter,
    *,
    resume: bool = False,
    controls: Sequence[str] | None = None,
    soft_labels: SoftLabels | None = None,
    spread: Spread | None = None,
) -> Run:
    """A run before its first line, in a folder that the caller holds; with `resume`, one that is there.

    spread: an engine that encodes the text on other machines.
    """
    labeled = check_sources(config, corpus)
    if config.expert.traits.reads == "probabilities":
        soft_labels = open_soft_labels(config, labeled.labels.classes, soft_labels)
        _refuse_unknown_texts(soft_labels, labeled, corpus)
    words_of_language_model(config)  # refuses one that does not fit, before the folder is taken
    refuse_other_previous_run(config, corpus, labeled)
    device = choose_device(config.runtime.device)
    unlabeled = UnlabeledTexts(config, corpus.unlabeled, corpus.test_survey.known)
    if isinstance(soft_labels, SoftLabelTable):
        unlabeled.check = soft_labels
    with ranks.first_goes_ahead():
        is_new = folder.claim(identity_of(config, corpus, soft_labels), resume)
        try:
            refuse_other_documents(labeled, corpus, folder)
            reader = open_reader(config, folder, labeled.labels.classes, device, soft_labels)
            counts = encode_parts(config, labeled, unlabeled, folder, reporter, reader, spread)
        except MeinError:
            if is_new and not (folder / "vocabularies.json").exists():
                shutil.rmtree(folder / HUB, ignore_errors=True)
                folder.release("labels.json", "test.json")
            raise
    runtime = Runtime(folder, reporter, config.runtime.checkpoint_seconds)
    indexer = load_indexer(config, folder, reader)
    controls = control_names() if controls is None else controls
    return Run(config, corpus, labeled, counts, indexer, runtime, device, controls)


def identity_of(config: Config, corpus: Corpus, soft_labels: SoftLabels | None = None) -> dict[str, Any]:
    """What makes a run the run it is: settings, less those of the machine, and what it is made from.

    Data goes by its name, a teacher's table and the language model to start from by their content.
    """
    identity: dict[str, Any] = {
        "config": config.model_dump(mode="json", exclude={"runtime"}),
        "data": corpus.names,
    }
    if isinstance(soft_labels, SoftLabelTable):
        identity["soft_labels"] = soft_labels.digest
    if config.expert.language_model is not None:
        identity["language_model"] = digest_of_language_model(config)
    if config.expert.from_run is not None:
        identity["from_run"] = digest_of_previous_run(config)
    return identity


def _refuse_unknown_texts(soft_labels: SoftLabels, labeled: Split, corpus: Corpus) -> None:
    """Look up every labeled and test document in a table of soft labels before anything is trained."""
    if isinstance(soft_labels, SoftLabelTable):
        soft_labels([*labeled.train_texts, *labeled.dev_texts])
        soft_labels.refuse_unknown(corpus.test_survey.keys, corpus.names.get("test", "the test documents"))


def refuse_other_documents(labeled: Split, corpus: Corpus, folder: RunFolder) -> None:
    """Write labels.json and test.json; where they are there, the documents must be those of their run."""
    content = {
        "classes": list(labeled.labels.classes),
        "prior": labeled.prior.tolist(),
        "documents": labeled.digest,
    }
    _remember(folder, "labels.json", content, "labeled")
    began_without = (folder / "prepared.json").exists() and not (folder / "test.json").exists()
    if corpus.test is not None and not began_without:  # an older version's run, or one on another's text
        _remember(folder, "test.json", {"documents": corpus.test_survey.digest}, "test")


def _remember(folder: RunFolder, name: str, content: dict[str, Any], which: str) -> None:
    if not (folder / name).exists():
        folder.write_json(name, content)
    elif folder.read_json(name) != content:
        raise RunError(
            f"The {which} documents are not those that the run in {folder.path} began with: "
            "restore them, or choose another --out."
        )
