"""Reading in tests: a source to lists, a file from bytes, a refusal with its sentence."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mein.data.columns import ColumnsConfig
from mein.data.files import Source
from mein.data.labels import Label
from mein.data.readers import read_documents
from mein.errors import InputError

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def read(source: Source, labeled: bool = True, **names: str) -> tuple[list[str], list[Label]]:
    texts: list[str] = []
    labels: list[Label] = []
    for chunk in read_documents(source, ColumnsConfig(**names), labeled=labeled):
        texts += chunk.texts
        labels += chunk.labels if chunk.labels is not None else []
        assert (chunk.labels is not None) == labeled
    return texts, labels


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refuses(source: Source, sentence: str, **names: Any) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(source, **names)
    assert "\n" not in str(caught.value)
