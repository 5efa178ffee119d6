"""The files of a run folder: verified when they are read back, and named with their digests in `done`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mein.errors import RunError
from mein.runtime import ranks
from mein.runtime.files import sha256_of
from mein.runtime.run_folder import RunFolder
from mein.runtime.tensors import digest_in, digest_of, load_tensors, save_tensors

if TYPE_CHECKING:  # to see whether a folder is a run takes neither torch nor numpy
    import torch

    from mein.config import Config
    from mein.text.indexer import Indexer, Reader

HUB = "hub"  # the folder of a run with the files of the Hugging Face model that it started from
TEACHER = "teacher.json"  # the weight of the lexicon, where expert and lexicon are the teacher
VOCABULARIES = ("words.txt", "pieces.model")  # their digests are in vocabularies.json, too
ESTIMATOR = "expert.skops"  # a classifier from Python
REQUIRED = ("config.json", "labels.json", "vocabularies.json", *VOCABULARIES, TEACHER, ESTIMATOR)
LISTED = (
    "metrics.jsonl",
    "predictions.parquet",
    "highlights.json",
    "provenance.json",
    "prepared.json",
    "test.json",
)
EXPERT_OF_ALL = "expert-of-all"  # learned again from all labels, where few teach; `expert` is that of train
WRITTEN = "artefacts.json"  # the digests of the artefacts that a run has written, before it is finished


ArtefactContent = tuple[dict[str, "torch.Tensor"], dict[str, Any]]
"""Tensors and the facts beside them."""


@dataclass(frozen=True)
class Done:
    """The digests of a finished run's files."""

    required: Mapping[str, str]
    """Files that answers depend on; verified whenever a model is loaded."""
    listed: Mapping[str, str]
    """Measurements; verified by what reads them."""


def seal(folder: RunFolder) -> None:
    """Mark a run as finished: write `done`, with the name and the digest of every artefact."""
    required, listed = (_there(folder, names) for names in (REQUIRED, LISTED))
    tensors = {path.name for path in folder.path.glob("*.safetensors")}
    required += sorted(name for name in tensors if not name.startswith(".") and "checkpoint" not in name)
    required += _of_hub(folder)
    folder.write_json("done", {"required": _digests(folder, required), "listed": _digests(folder, listed)})


def _of_hub(folder: RunFolder) -> list[str]:
    """The files of the Hugging Face model, if there is one."""
    return sorted(str(path.relative_to(folder.path)) for path in _hub_files(folder))


def remember_hub(folder: RunFolder) -> None:
    """Note the digests of the Hugging Face model's files, by which a resumed run refuses others."""
    written = _written(folder)
    new = [name for name in _of_hub(folder) if name not in written]
    if ranks.is_first() and new and not folder.is_done:
        folder.write_json(WRITTEN, written | _digests(folder, new))


def leave(folder: RunFolder, name: str, learn: Callable[[], ArtefactContent]) -> bool:
    """Leave the artefact `name`, with what `learn` returns, unless it is complete; whether it is new.

    This is all there is to --resume: an artefact that is complete is not made again. Of several processes
    all learn and the first writes.
    """
    path = folder / f"{name}.safetensors"
    is_new = not ranks.exists(path)
    if is_new:
        with folder.timed(name):
            tensors, facts = learn()
        if ranks.is_first():  # the digest comes first: then no file of another run can take its place
            digest = digest_of(path.name, tensors, facts)
            folder.write_json(WRITTEN, _written(folder) | {path.name: digest})
        save_tensors(path, tensors, facts)
        ranks.barrier()  # the first may still be writing it
    elif ranks.is_first() and not folder.is_done and path.name not in _written(folder):
        folder.write_json(WRITTEN, _written(folder) | {path.name: digest_in(path)})  # a link
    folder.drop(f"{name}.checkpoint.safetensors")
    return is_new


def refuse_other_artefacts(folder: RunFolder) -> None:
    """Refuse to continue a run whose files are not those that it wrote; what it has not finished may lack."""
    if folder.is_done:
        done = verified(folder)
        verify(folder, done.listed, done.listed)
    else:
        written = _written(folder)
        verify(folder, written, _there(folder, written))


def _written(folder: RunFolder) -> dict[str, str]:
    return folder.read_json(WRITTEN) if (folder / WRITTEN).exists() else {}


def verified(folder: RunFolder) -> Done:
    """The artefacts of a finished run, once everything that its answers depend on is as it was written."""
    done = read_done(folder)
    for name, digest in done.required.items():
        _verify(folder, name, digest)
    for path in _hub_files(folder):
        if str(path.relative_to(folder.path)) not in done.required:
            raise RunError(f"{path} is unknown to its run: remove it.")
    return done


def _hub_files(folder: RunFolder) -> list[Path]:
    """What is in the run's folder of the Hugging Face model, but for hidden files and folders."""
    return [
        path
        for path in (folder / HUB).rglob("*")
        if not path.is_dir() and not any(part.startswith(".") for part in path.relative_to(folder.path).parts)
    ]


def read_done(folder: RunFolder) -> Done:
    """The digests of a finished run; refuse a run that is not finished."""
    if not folder.is_done:
        folder.read_json("config.json")  # refuses what is no run at all
        raise RunError(f"The run in {folder.path} is not finished: continue it with `mein train --resume`.")
    content = folder.read_json("done")
    required, listed = content.get("required"), content.get("listed")
    if not isinstance(required, dict) or not isinstance(listed, dict) or "config.json" not in required:
        raise damaged(folder / "done")
    return Done(required, listed)


def verify(folder: RunFolder, digests: Mapping[str, str], names: Iterable[str]) -> None:
    """Refuse those of the files that are not the ones whose digests were written."""
    for name in names:
        _verify(folder, name, digests.get(name, ""))


def _verify(folder: RunFolder, name: str, digest: str) -> None:
    if not (folder / name).is_file():
        raise RunError(f"{folder / name} is missing: restore it from a copy of the run.")
    if _digest(folder, name) != digest:
        raise damaged(folder / name)


def _digest(folder: RunFolder, name: str) -> str:
    """The checksum of a file; for tensors of mein the one in the header, which loading them verifies."""
    is_ours = name.endswith(".safetensors") and "/" not in name
    try:
        return digest_in(folder / name) if is_ours else sha256_of(folder / name)
    except OSError as problem:
        raise damaged(folder / name) from problem


def _digests(folder: RunFolder, names: Sequence[str]) -> dict[str, str]:
    return {name: _digest(folder, name) for name in names}


def _there(folder: RunFolder, names: Iterable[str]) -> list[str]:
    return [name for name in names if (folder / name).exists()]


def of_train(system: str) -> str:
    """The artefact of a system that has not seen dev, where there is one that has."""
    return f"{system}-of-train"


def damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged, or belongs to another run: restore it from a copy of its own run.")


def restore(folder: RunFolder, name: str, network: "torch.nn.Module") -> dict[str, Any]:
    """Give a network the weights of its artefact, and return the facts beside them."""
    path = folder / f"{name}.safetensors"
    weights, facts = load_tensors(path)
    fill(network, weights, path)
    return facts


def fill(network: "torch.nn.Module", weights: "Mapping[str, torch.Tensor]", path: Path) -> None:
    """Give a network the weights that were read from a file; they must be finite, or answers would be NaN."""
    try:
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, ValueError) as problem:  # the latter of a network's own loading
        raise unfit(path) from problem
    bad = next((name for name, tensor in weights.items() if not tensor.isfinite().all()), None)
    if bad is not None:
        raise RunError(
            f"{path} holds numbers that are not finite, in {bad!r}: restore it from a copy, or train again "
            "with a lower learning rate."
        )


def refuse_larger(
    build: "Callable[[], torch.nn.Module]", weights: "Mapping[str, torch.Tensor]", path: Path
) -> None:
    """Refuse settings by which a network would be larger than the weights for it, before it takes memory."""
    import torch

    try:
        with torch.device("meta"):  # sizes without memory
            shapes = {name: tensor.shape for name, tensor in build().state_dict().items()}
    except (RuntimeError, ValueError, TypeError, OverflowError) as problem:
        raise unfit(path) from problem
    if any(name not in weights or shape.numel() > weights[name].numel() for name, shape in shapes.items()):
        raise unfit(path)


def unfit(path: Path) -> RunError:
    """The error for weights that are not those of the network beside them."""
    return RunError(
        f"{path} does not fit config.json and the vocabularies beside it: "
        "the folder mixes files of different runs; restore it from a copy."
    )


def load_indexer(config: "Config", folder: RunFolder, reader: "Reader | None" = None) -> "Indexer":
    """The vocabularies of a run, verified to be those that it was trained with."""
    from mein.text.indexer import Indexer
    from mein.text.pieces import Pieces
    from mein.text.words import Words

    verify_words(folder)
    words, pieces = Words.load(folder / "words.txt"), Pieces.load(folder / "pieces.model")
    return Indexer(config.words, words, pieces, reader)


def verify_words(folder: RunFolder) -> None:
    """Refuse vocabularies that are not those that the folder's networks were trained with."""
    written = folder.read_json("vocabularies.json").get("sha256")
    verify(folder, written if isinstance(written, dict) else {}, VOCABULARIES)


def save_indexer(folder: RunFolder, indexer: "Indexer", facts: dict[str, int]) -> None:
    """Leave words.txt and pieces.model in the folder, and then facts about them."""
    indexer.words.save(folder / "words.txt")
    indexer.pieces.save(folder / "pieces.model")
    sizes = {"words": indexer.words.size, "pieces": indexer.pieces.size}
    folder.write_json("vocabularies.json", {**sizes, **facts, "sha256": _digests(folder, VOCABULARIES)})
