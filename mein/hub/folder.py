"""A folder with all that a model needs offline: network, tokenizer, and facts about them."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn

from mein.errors import ConfigError, RunError
from mein.files import writing_failed
from mein.hub.facts import FACTS, Facts, read_facts
from mein.hub.layers import freeze, refuse_to_cut
from mein.hub.library import LOADING_PROBLEMS, LOCAL, reason, transformers_quietly
from mein.hub.networks import as_expert, load_classifier, reads_the_end
from mein.hub.sizes import blank_token, embeddings_of, is_of_encoder, longest_input
from mein.hub.source import CONFIG, locate, pooling_of

Loaded = tuple[nn.Module, dict[str, Tensor]]  # a network, and those of its weights that are worth keeping


def fetch(
    model: str, folder: Path, classes: int, layers: int | None = None, frozen_layers: int | None = None
) -> None:
    """Leave in `folder` what a model needs to work offline; it appears whole or not at all.

    `model` is a local folder or a name on the hub; of its layers the first `layers` are kept, and it is
    seen that `frozen_layers` leave some to train. Of a head that is missing or has another number of
    classes nothing is kept: `load_transformer` draws one from its seed.
    """

    def load(source: Path, tokenizer: Any) -> Loaded:
        network, fresh = load_network(source, model, classes, layers)
        as_expert(network, repr(model))
        freeze(network, frozen_layers, model)
        return network, without(network, fresh)

    fetch_as(model, folder, classes, load)


def fetch_as(model: str, folder: Path, classes: int, load: Callable[[Path, Any], Loaded]) -> None:
    """Leave in `folder` the network that `load` makes of a source and its tokenizer, whole or not at all."""
    if _is_fetched(model, folder, classes):
        return
    source = locate(model)
    with filling(folder.with_name(f".{folder.name}.fetching"), folder) as temporary:
        _fill(temporary, source, model, classes, load)
        sync(temporary)
        temporary.replace(folder)


@contextmanager
def filling(temporary: Path, folder: Path) -> Iterator[Path]:
    """A temporary folder for what is to lie in `folder`, gone afterwards; what cannot be written is told."""
    shutil.rmtree(temporary, ignore_errors=True)  # a kill may have left one
    try:
        temporary.mkdir(parents=True)
        yield temporary
    except OSError as problem:
        raise writing_failed(folder, problem) from problem
    except SafetensorError as problem:
        raise RunError(f"Cannot write {folder}: {reason(problem)}; free some space there.") from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_fetched(model: str, folder: Path, classes: int) -> bool:
    if not (folder / FACTS).exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder} exists and holds no fetched model: choose another folder or empty it.")
        return False
    facts = read_facts(folder)
    if (facts.model, facts.classes) != (model, classes):
        raise RunError(
            f"{folder} holds {facts.model!r} for {facts.classes} classes, not {model!r} for {classes}: "
            "choose another folder or remove it."
        )
    return True


def _fill(folder: Path, source: Path, model: str, classes: int, load: Callable[[Path, Any], Loaded]) -> None:
    tokenizer = load_tokenizer(source, model)
    network, kept = load(source, tokenizer)
    if tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=False) > embeddings_of(network):
        raise ConfigError(
            f"{model!r} has more tokens than embeddings: give it the tokenizer that it was trained with."
        )
    with transformers_quietly():
        tokenizer.save_pretrained(folder)
        network.save_pretrained(folder, state_dict=kept)  # type: ignore[operator]
    facts = Facts(
        model=model,
        classes=classes,
        longest=longest_input(network, tokenizer.model_max_length),
        blank=blank_token(network),
        pooling=pooling_of(source, default="lasttoken" if reads_the_end(network) else "mean"),
        weights=_hash_of_weights(folder),
    )
    text = json.dumps(asdict(facts), indent=2, ensure_ascii=False)
    (folder / FACTS).write_text(text + "\n", encoding="utf-8")


def load_tokenizer(source: Path, model: str) -> Any:
    """A model's own tokenizer, a fast one."""
    try:
        with transformers_quietly() as transformers:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **LOCAL)
    except LOADING_PROBLEMS as problem:
        raise ConfigError(
            f"The tokenizer of {model!r} cannot be read ({reason(problem)}): write it with save_pretrained."
        ) from problem
    if not tokenizer.is_fast:
        raise ConfigError(f"{model!r} has no fast tokenizer: choose a model with a tokenizer.json.")
    return tokenizer


def load_network(
    source: Path, model: str, classes: int, layers: int | None = None
) -> tuple[nn.Module, set[str]]:
    """A model's network for sequence classification, and what starts fresh of it: no part of its encoder."""
    if layers is not None:
        refuse_to_cut(source, layers, model)
    try:
        network, fresh = load_classifier(source, classes, 0, layers)
    except LOADING_PROBLEMS as problem:
        raise ConfigError(
            f"{model!r} cannot be loaded as a text classifier ({reason(problem)}): "
            "choose a model that AutoModelForSequenceClassification knows."
        ) from problem
    # A head may start fresh, and so may the pooling layer below it; an encoder may not.
    lost = sorted(name for name in fresh if is_of_encoder(network, name))
    if lost:
        raise ConfigError(
            f"The weights of {model!r} do not fit its {CONFIG}: {lost[0]} is missing or has another shape; "
            "give the folder that save_pretrained wrote."
        )
    return network, fresh


def without(network: nn.Module, fresh: set[str]) -> dict[str, Tensor]:
    """The weights of a network, less some by name."""
    return {name: value for name, value in network.state_dict().items() if name not in fresh}


def _hash_of_weights(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as weights:
            while block := weights.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def sync(folder: Path) -> None:
    """Bring every file to the disk before the folder gets its name; weights as readable as the others."""
    mode = (folder / CONFIG).stat().st_mode
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with suppress(PermissionError):  # not every disk knows modes
            path.chmod(mode)
        with path.open("rb") as written:
            os.fsync(written.fileno())
