"""A classifier to share, without any document: a folder, the Hugging Face hub, or a transformer export."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from mein.errors import ConfigError, MissingExtra, RunError
from mein.evaluation.systems import EXPERT
from mein.hub import load_transformer
from mein.hub.fetch import CONFIG, POOLING, filling, load_tokenizer, sync
from mein.hub.networks import read_facts, reason, transformers_quietly
from mein.mixture.lexicon import LEXICON, load_lexicon
from mein.model.artefacts import (
    ESTIMATOR,
    EXPERT_OF_ALL,
    HUB,
    VOCABULARIES,
    restore,
    seal,
    verified,
)
from mein.model.loading import FinishedRun
from mein.model.model import Model
from mein.report.card import write_card
from mein.report.record import read_finished
from mein.runtime.files import atomic_path, expanded, writing_failed
from mein.runtime.run_folder import RunFolder

CARD = "README.md"
TEMPORARY = ".leaving"  # where the files of an export lie until all are written
COPIED = ("labels.json", *VOCABULARIES, "vocabularies.json", "imitators.safetensors", "mixture.safetensors")
# Named one by one: no pattern matches a pickle or code, or the run's documents and predictions.
SHARED_FILES = ["config.json", *COPIED, LEXICON, ESTIMATOR, CARD, "done"]
SHARED_FILES += [f"{HUB}/*.{ending}" for ending in ("json", "txt", "safetensors", "model")]


def save_pretrained(source: Model | Path, folder: Path) -> None:
    """Write what prediction needs, and a model card, into a new folder.

    The card of a run folder has its figures. Encoded documents, predictions, the report, and the paths of the
    data are not copied. words.txt and pieces.model hold single words of the training text, and a lexicon
    pairs and triples of pieces that occur in two labeled documents or more.
    """
    if isinstance(source, Model):
        source.save(folder)
        write_card(folder)
    else:
        _copy(source, folder)


def from_pretrained(path_or_id: str | Path, *, revision: str | None = None, token: str | None = None) -> Path:
    """The local folder of a shared classifier, for `load_model`; an id is fetched from the hub."""
    path = expanded(Path(path_or_id))
    name = str(path_or_id)
    if not path.is_dir():
        if isinstance(path_or_id, Path) or name.startswith((".", "/", "~")) or name.count("/") != 1:
            raise RunError(
                f"There is no folder {name!r}: give one that save_pretrained or `mein train` wrote, "
                "or a name on the hub such as someone/reviews."
            )
        path = _download(name, revision, token)
    missing = [file for file in ("config.json", "mixture.safetensors", "done") if not (path / file).exists()]
    if missing:
        raise RunError(
            f"{name!r} is no classifier of mein, {missing[0]} is missing: give a folder that "
            "save_pretrained or `mein train` wrote."
        )
    return path


def push_to_hub(
    source: Model | Path,
    repo_id: str,
    *,
    private: bool = True,
    token: str | None = None,
    message: str = "Upload a classifier of mein",
) -> str:
    """Upload what `save_pretrained` writes to the hub; returns its address."""
    with tempfile.TemporaryDirectory(prefix="mein-share-") as temporary:
        folder = Path(temporary) / (repo_id.rpartition("/")[2] or "classifier")
        save_pretrained(source, folder)
        with _hub(repo_id) as hub:
            api = hub.HfApi(token=token)
            found = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(
                folder_path=folder,
                repo_id=found.repo_id,
                commit_message=message,
                allow_patterns=SHARED_FILES,
            )
            return str(found)


def _copy(run: Path, target: Path) -> None:
    finished, source, folder = read_finished(run), RunFolder(run), RunFolder(target)
    verified(source)
    if (folder / "config.json").exists():
        raise RunError(f"{target} already holds a run: save to another folder.")
    if finished.lexicon_gate is not None:
        load_lexicon(source / LEXICON)  # refuses a lexicon that cannot be opened
    with folder.held():
        folder.claim({"config": finished.config}, resume=False)
        there = {LEXICON: finished.lexicon_gate is not None, ESTIMATOR: (source / ESTIMATOR).exists()}
        for name in (*COPIED, *filter(there.get, there)):
            with atomic_path(folder / name) as temporary:
                shutil.copyfile(source / name, temporary)
        if (source / HUB).exists():
            try:
                shutil.copytree(source / HUB, folder / HUB)
            except (OSError, shutil.Error) as problem:
                raise writing_failed(folder / HUB, _system_error(problem)) from problem
        if (source / CARD).exists():  # it may have been edited
            shutil.copyfile(source / CARD, folder / CARD)
        else:
            write_card(run, folder / CARD)
        seal(folder)


def _system_error(problem: OSError) -> OSError:
    """copytree collects its errors in one without a number."""
    return problem if problem.errno is not None else OSError(0, reason(problem))


def _download(name: str, revision: str | None, token: str | None) -> Path:
    with _hub(name) as hub:
        return Path(hub.snapshot_download(name, revision=revision, token=token, allow_patterns=SHARED_FILES))


@contextmanager
def _hub(name: str) -> Iterator[Any]:
    """The library of the Hugging Face hub; its errors become one sentence."""
    try:
        import huggingface_hub
        from huggingface_hub.utils import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    except ImportError as problem:
        raise MissingExtra(
            f"The hub needs the package huggingface_hub ({problem}): pip install '.[hub]'"
        ) from problem
    refusals: tuple[type[Exception], ...] = (OSError, *_http_errors(HfHubHTTPError))
    try:
        yield huggingface_hub
    except HFValidationError as problem:
        raise RunError(f"{name!r} is no name on the hub: give one such as someone/reviews.") from problem
    except RepositoryNotFoundError as problem:
        raise RunError(
            f"The hub shows no {name!r}: check its spelling, or log in with `hf auth login` if it is private."
        ) from problem
    except refusals as problem:
        raise RunError(
            f"{name!r} is no folder here, and the hub cannot be reached or refuses ({reason(problem)}): "
            "go online, log in with `hf auth login`, or give a local folder."
        ) from problem


def _http_errors(of_hub: type[Exception]) -> tuple[type[Exception], ...]:
    """The hub's error, and that of the HTTP library below it, which also covers a lost connection."""
    below = (base for base in of_hub.__mro__ if base.__name__ == "HTTPError" and issubclass(base, Exception))
    return (of_hub, *below)


def export_transformer(path: Path, out: Path) -> None:
    """Write the expert of a finished run into an empty folder: network, head, class names, tokenizer."""
    run = FinishedRun.open(path)
    if not run.config.expert.traits.is_exported:
        raise ConfigError(
            f"The expert of {path} is {run.config.expert.kind!r}, which is no Hugging Face model: "
            "export a run of --preset transformer."
        )
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - {TEMPORARY}):
        raise RunError(f"{out} exists and is no empty folder: empty it, or choose another --out.")
    classes = [str(label) for label in run.labels.classes]
    expert = load_transformer(run.folder / HUB, len(classes), run.config.seed)
    again = f"{EXPERT_OF_ALL}.safetensors" in run.done.required
    restore(run.folder, EXPERT_OF_ALL if again else EXPERT, expert)
    config = expert.network.config
    config.id2label = dict(enumerate(classes))  # type: ignore[union-attr]
    config.label2id = {name: number for number, name in enumerate(classes)}  # type: ignore[union-attr]
    _leave(expert.network, run.folder / HUB, out)


def _leave(network: nn.Module, fetched: Path, folder: Path) -> None:
    """Save a network in a folder, with tokenizer and pooling of the `fetched` one.

    Its config.json comes last: without it the folder does not count as a model.
    """
    with filling(folder / TEMPORARY, folder) as temporary:
        (temporary / POOLING).parent.mkdir()
        with transformers_quietly():
            _tokenizer(fetched).save_pretrained(temporary)
            network.save_pretrained(temporary)  # type: ignore[operator]
        text = json.dumps({"pooling_mode": read_facts(fetched).pooling}, indent=2)
        (temporary / POOLING).write_text(text + "\n", encoding="utf-8")
        sync(temporary)
        _move(temporary, folder)


def _tokenizer(fetched: Path) -> Any:
    """The fetched tokenizer, with the network's limit."""
    tokenizer, longest = load_tokenizer(fetched, str(fetched)), read_facts(fetched).longest
    if longest is not None:
        tokenizer.model_max_length = longest
    return tokenizer


def _move(temporary: Path, folder: Path) -> None:
    """Move all files of one folder to the other, config.json last."""
    files = [path for path in temporary.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path == temporary / CONFIG):
        target = folder / path.relative_to(temporary)
        target.parent.mkdir(exist_ok=True)
        path.replace(target)
