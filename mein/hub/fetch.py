"""A model from a local folder or the Hugging Face hub, in a folder with all that it needs offline."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from mein.errors import ConfigError, RunError
from mein.hub.networks import (
    FACTS,
    LOADING_PROBLEMS,
    LOCAL,
    ModelFacts,
    as_expert,
    blank_token,
    embeddings_of,
    freeze,
    is_of_encoder,
    load_classifier,
    longest_input,
    missing,
    read_facts,
    reads_the_end,
    reason,
    refuse_to_cut,
    transformers_quietly,
)
from mein.hub.static import MODULES, STATIC, copy_static, static_parts
from mein.runtime.files import writing_failed

CONFIG = "config.json"
POOLING = "1_Pooling/config.json"
PROMPTS = "config_sentence_transformers.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
# No pattern meets pickled weights, and none meets copies for other libraries in deeper folders.
WANTED = [
    *(CONFIG, POOLING, PROMPTS, MODULES, *WEIGHTS, *TOKENIZER_FILES),
    *("0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"),
    *("model-*.safetensors", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "merges.txt"),
]


def locate(model: str) -> Path:
    """The folder with a model's files, fetched from the hub where `model` is no folder.

    A name on the hub may end in `@` and a revision: a commit, a tag, or a branch.
    """
    path = Path(model).expanduser()
    if not path.is_dir():
        name, _, revision = model.partition("@")
        if name.startswith((".", "/", "~")) or name.count("/") > 1 or path.exists():
            raise ConfigError(
                f"There is no folder {model!r}: give one that save_pretrained wrote, or a name on the hub."
            )
        path = _download(model, name, revision or None)
    if static_parts(path) is None:
        _check(model, path)
    return path


def pooling_of(source: Path, default: str = "mean") -> str:
    """How a model's states become features: what sentence-transformers wrote beside it, or the default."""
    settings = _settings(source / POOLING)
    if settings is None:
        return default
    flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    mode = str(settings.get("pooling_mode", "+".join(flags)))  # newer files name it, older ones flag it
    mode = mode.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
    is_without = prefix_of(source) and settings.get("include_prompt") is False
    return f"{mode} without the prompt" if is_without else mode


def prefix_of(source: Path) -> str:
    """The prompt that sentence-transformers puts before every text by default; mostly none."""
    settings = _settings(source / PROMPTS) or {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(prompts.get(name), str):
        raise ConfigError(f"{source / PROMPTS} has no prompt {name!r}, its default: restore or remove it.")
    return str(prompts[name])


def _settings(path: Path) -> dict[str, Any] | None:
    """What sentence-transformers wrote into a file; none without it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no settings")
    except FileNotFoundError:
        return None
    except ValueError as problem:
        raise ConfigError(f"{path} is damaged ({reason(problem)}): restore or remove it.") from problem
    return content


def _download(model: str, name: str, revision: str | None) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub import utils
    except ImportError as problem:
        raise missing(problem) from problem
    verbosity = utils.logging.get_verbosity()
    utils.logging.set_verbosity_error()  # it warns of each of five attempts to get online
    try:
        found = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=WANTED)
        return Path(found)
    except utils.HFValidationError as problem:
        raise ConfigError(
            f"{model!r} is neither a folder nor a name on the hub: give one such as "
            "./minilm or sentence-transformers/all-MiniLM-L6-v2."
        ) from problem
    except utils.RepositoryNotFoundError as problem:
        raise ConfigError(
            f"The hub shows no model {name!r}: check its spelling, or log in with `hf auth login` "
            "if it is private."
        ) from problem
    except utils.RevisionNotFoundError as problem:
        raise ConfigError(
            f"The hub has no revision {revision!r} of {name!r}: give one of its commits, or the name only."
        ) from problem
    except (OSError, utils.HfHubHTTPError) as problem:
        raise ConfigError(
            f"{model!r} is no folder here, and as a name on the hub it cannot be reached "
            f"({reason(problem)}): go online once, or give a local folder."
        ) from problem
    finally:
        utils.logging.set_verbosity(verbosity)


def _check(model: str, source: Path) -> None:
    if not (source / CONFIG).is_file():
        raise ConfigError(
            f"{model!r} is no model of transformers, it has no {CONFIG}: give a folder that "
            "save_pretrained wrote."
        )
    if not any((source / name).is_file() for name in WEIGHTS):
        raise ConfigError(
            f"{model!r} has no {WEIGHTS[0]}, and pickled weights are not read since they can run code: "
            "convert them with save_pretrained."
        )
    # subtle: without any of these, transformers makes an empty vocabulary without a warning
    if not any((source / name).is_file() for name in TOKENIZER_FILES):
        raise ConfigError(
            f"{model!r} has no tokenizer: save it into the same folder with the tokenizer's save_pretrained."
        )


def fetch(
    model: str, folder: Path, classes: int, layers: int | None = None, frozen_layers: int | None = None
) -> None:
    """Leave in `folder` what a model needs to work offline; it appears complete or not at all.

    `model` is a local folder or a name on the hub (see `locate`). Of its layers the first `layers` are
    kept, and `frozen_layers` must leave some to train. A head that is missing or has another number of
    classes is dropped: `load_transformer` draws one from its seed.
    """
    if _is_fetched(model, folder, classes):
        return
    source = locate(model)
    with filling(folder.with_name(f".{folder.name}.fetching"), folder) as temporary:
        _fill(temporary, source, model, classes, layers, frozen_layers)
        sync(temporary)
        temporary.replace(folder)


@contextmanager
def filling(temporary: Path, folder: Path) -> Iterator[Path]:
    """A temporary folder for the content of `folder`, removed afterwards; failures to write are reported."""
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


def _fill(
    folder: Path, source: Path, model: str, classes: int, layers: int | None, frozen_layers: int | None
) -> None:
    """Write a model's files and the facts about it."""
    static = static_parts(source)
    if static is None:
        facts = _fill_network(folder, source, model, classes, layers, frozen_layers)
    elif layers is not None:
        raise ConfigError(f"{model!r} holds static embeddings, without layers: remove expert.layers.")
    else:
        copy_static(model, static, folder)
        facts = ModelFacts(model, classes, None, 0, STATIC, _hash_of_weights(folder))
    text = json.dumps(asdict(facts), indent=2, ensure_ascii=False)
    (folder / FACTS).write_text(text + "\n", encoding="utf-8")


def _fill_network(
    folder: Path, source: Path, model: str, classes: int, layers: int | None, frozen_layers: int | None
) -> ModelFacts:
    """Write the files of a network and its tokenizer; the facts about them."""
    tokenizer = load_tokenizer(source, model)
    network, fresh = _load_network(source, model, classes, layers)
    as_expert(network, repr(model))
    freeze(network, frozen_layers, model)
    kept = {name: value for name, value in network.state_dict().items() if name not in fresh}
    if tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=False) > embeddings_of(network):
        raise ConfigError(
            f"{model!r} has more tokens than embeddings: give it the tokenizer that it was trained with."
        )
    with transformers_quietly():
        tokenizer.save_pretrained(folder)
        network.save_pretrained(folder, state_dict=kept)  # type: ignore[operator]
    return ModelFacts(
        model=model,
        classes=classes,
        longest=longest_input(network, tokenizer.model_max_length),
        blank=blank_token(network),
        pooling=pooling_of(source, default="lasttoken" if reads_the_end(network) else "mean"),
        weights=_hash_of_weights(folder),
        prefix=prefix_of(source),
    )


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


def _load_network(source: Path, model: str, classes: int, layers: int | None) -> tuple[nn.Module, set[str]]:
    """A model's network for sequence classification, and its new parameters, none of its encoder."""
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


def _hash_of_weights(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as weights:
            while block := weights.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def sync(folder: Path) -> None:
    """Sync every file before the folder gets its name, all with the same permissions."""
    mode = (folder / CONFIG).stat().st_mode
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with suppress(PermissionError):  # not every disk knows modes
            path.chmod(mode)
        with path.open("rb") as written:
            os.fsync(written.fileno())
