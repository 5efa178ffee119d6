"""Static embeddings, as model2vec and sentence-transformers write them: the mean of a vector for each token.

They need no transformers and no GPU. A run keeps them in model2vec's format, whatever they came in.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from torch import Tensor

from mein.errors import ConfigError
from mein.hub.networks import damaged_model, read_facts, reason
from mein.hub.readers import HubTokenizer, load_tokens
from mein.text.ragged import Ragged, offsets_of

STATIC = "static"  # how such a model pools, among its facts
CONFIG, MODULES, WEIGHTS, TOKENIZER = "config.json", "modules.json", "model.safetensors", "tokenizer.json"
OTHERS = ("weights", "mapping")  # of tokens, and of tokens to rows of the table; most models have neither


def static_parts(source: Path) -> tuple[Path, bool] | None:
    """The folder with table and tokenizer, and whether means are normalized; none for another model."""
    config, modules = _content(source / CONFIG), _content(source / MODULES)
    if isinstance(config, dict) and config.get("model_type") == "model2vec":
        return source, bool(config.get("normalize", False))
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        return None
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    if kinds[:1] != ["StaticEmbedding"]:
        return None
    if kinds[1:] not in ([], ["Normalize"]):
        raise ConfigError(
            f"{source} has layers after its static embeddings ({kinds[1]}): choose another encoder."
        )
    return source / Path(str(modules[0].get("path", ""))).name, len(kinds) == 2  # never outside the folder


def _content(path: Path) -> Any:
    """What a JSON file holds; none where it cannot be read, which others report."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def copy_static(model: str, parts: tuple[Path, bool], folder: Path) -> None:
    """Write static embeddings into a folder in model2vec's format, once they are known to fit together."""
    source, is_normalized = parts
    try:
        tensors = load_file(source / WEIGHTS)
        table = tensors.get("embeddings", tensors.get("embedding.weight"))  # their names for it
        if table is None or table.ndim != 2:
            raise ValueError(f"{WEIGHTS} holds no table 'embeddings'")
        tokens = max(load_tokens(source).get_vocab().values(), default=-1) + 1
    except (OSError, ValueError, SafetensorError) as problem:
        raise ConfigError(
            f"The static embeddings of {model!r} cannot be read ({reason(problem)}): "
            "give a folder that model2vec's save_pretrained wrote."
        ) from problem
    others: dict[str, Tensor] = {name: tensors[name] for name in OTHERS if name in tensors}
    rows = others.get("mapping", table[:, 0])
    is_outside = "mapping" in others and int(rows.max()) >= len(table)
    if is_outside or min(len(rows), len(others.get("weights", rows))) < tokens:
        raise ConfigError(
            f"{model!r} has more tokens than embeddings: give it the tokenizer that it was trained with."
        )
    shutil.copyfile(source / TOKENIZER, folder / TOKENIZER)
    save_file({"embeddings": table, **others}, folder / WEIGHTS)
    config = {"model_type": "model2vec", "normalize": is_normalized}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def is_static(folder: Path) -> bool:
    """Whether a folder that `fetch` wrote holds static embeddings."""
    return read_facts(folder).pooling == STATIC


class StaticFeatures:
    """Texts -> rows of D features (float32): sum_t w_t e_t / T over a text's T tokens, of norm 1 or not.

    w_t: 1 without weights. Special tokens and unknown ones do not count; without tokens the features are 0.
    """

    is_slow, is_beside_words = False, True

    def __init__(self, folder: Path, max_length: int | None = None, threads: int = 1) -> None:
        self._weights_hash = read_facts(folder).weights
        self._tokenizer = HubTokenizer(folder, max_length, threads, is_bare=True)
        try:
            tensors = load_file(folder / WEIGHTS)
            self._is_normalized = bool(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["normalize"])
            self._table = tensors["embeddings"].float().numpy()  # (rows, D)
        except (OSError, ValueError, LookupError, SafetensorError) as problem:
            raise damaged_model(folder, problem) from problem
        known = {name: tensor.numpy() for name, tensor in tensors.items() if name != "embeddings"}
        self._row_of, self._weight_of = known.get("mapping"), known.get("weights")
        self.size: int = self._table.shape[1]

    def __reduce__(self) -> tuple[type["StaticFeatures"], tuple[Path, int | None, int]]:
        tokenizer = self._tokenizer
        return StaticFeatures, (tokenizer.folder, tokenizer.max_length, tokenizer.threads)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for two of them only if they compute the same."""
        parts = (self._weights_hash, self._is_normalized, self._tokenizer.fingerprint)
        return hashlib.blake2b(repr(parts).encode("utf-8"), digest_size=16).hexdigest()

    def __call__(self, texts: Sequence[str]) -> Ragged:
        """The features of each text, D numbers a row, in the order of the texts."""
        tokens = self._tokenizer(texts)
        n, weights = len(texts), np.ones(len(tokens.values), np.float32)
        if self._weight_of is not None:
            weights = self._weight_of[tokens.values].astype(np.float32)
        weights /= np.repeat(np.maximum(1, tokens.lengths), tokens.lengths)
        rows = tokens.values if self._row_of is None else self._row_of[tokens.values]
        found = csr_array((weights, rows, tokens.offsets), shape=(n, len(self._table))) @ self._table
        if self._is_normalized:
            norms = np.linalg.norm(found, axis=1, keepdims=True)
            found /= np.where(norms > 0, norms, 1)
        return Ragged(found.reshape(-1), offsets_of(np.full(n, self.size)))
