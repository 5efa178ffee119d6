"""Where a model comes from: a local folder, or a name on the Hugging Face hub."""

import json
from pathlib import Path

from mein.errors import ConfigError
from mein.hub.library import reason, transformers_quietly

CONFIG = "config.json"
POOLING = "1_Pooling/config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
VOCABULARIES = (
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
    *(CONFIG, POOLING, *WEIGHTS, *VOCABULARIES),
    *("model-*.safetensors", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "merges.txt"),
]


def locate(model: str) -> Path:
    """The folder with a model's files, fetched from the hub where `model` is no folder."""
    path = Path(model).expanduser()
    if not path.is_dir():
        if model.startswith((".", "/", "~")) or model.count("/") > 1 or path.exists():
            raise ConfigError(
                f"There is no folder {model!r}: give one that save_pretrained wrote, or a name on the hub."
            )
        path = _download(model)
    _check(model, path)
    return path


def pooling_of(source: Path, default: str = "mean") -> str:
    """How a model's states become features: what sentence-transformers wrote beside it, or the default."""
    try:
        settings = json.loads((source / POOLING).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except ValueError as problem:
        path = source / POOLING
        raise ConfigError(f"{path} is damaged ({reason(problem)}): restore or remove it.") from problem
    flags = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    mode = str(settings.get("pooling_mode", "+".join(flags)))  # newer files name it, older ones flag it
    return mode.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")


def _download(model: str) -> Path:
    with transformers_quietly():
        import huggingface_hub
        from huggingface_hub.utils import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=WANTED))
    except HFValidationError as problem:
        raise ConfigError(
            f"{model!r} is neither a folder nor a name on the hub: give one such as "
            "./minilm or sentence-transformers/all-MiniLM-L6-v2."
        ) from problem
    except RepositoryNotFoundError as problem:
        raise ConfigError(
            f"The hub shows no model {model!r}: check its spelling, or log in with `hf auth login` "
            "if it is private."
        ) from problem
    except (OSError, HfHubHTTPError) as problem:
        raise ConfigError(
            f"{model!r} is no folder here, and as a name on the hub it cannot be reached "
            f"({reason(problem)}): go online once, or give a local folder."
        ) from problem


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
    # subtle: without any of these, transformers makes an empty vocabulary and says nothing
    if not any((source / name).is_file() for name in VOCABULARIES):
        raise ConfigError(
            f"{model!r} has no tokenizer: save it into the same folder with the tokenizer's save_pretrained."
        )
