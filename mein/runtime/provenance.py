"""How a run came about: the command, the versions, the machine."""

import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from mein import __version__

PACKAGES = (
    *("torch", "numpy", "scipy", "scikit-learn", "pyarrow", "sentencepiece", "safetensors", "pydantic"),
    *("transformers", "tokenizers", "triton"),  # where they are installed
)
# The user in front of a host, and all behind a "?", where signed links carry their keys.
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@|(?<=\?)[^\s]+(?=$|\s)")


def provenance(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """The command line as it was typed, less credentials, and what it ran on; None: from Python.

    >>> provenance(["/usr/bin/mein", "train", "--labeled", "https://me:secret@host/a.csv?key=1"])["command"]
    ['mein', 'train', '--labeled', 'https://***@host/a.csv?***']
    """
    command = [] if argv is None else [Path(argv[0]).name, *argv[1:]]
    return {
        "command": [without_credentials(word) for word in command],
        "versions": versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }


def versions() -> dict[str, str]:
    """Of mein, Python and the packages that decide a result."""
    found = {"mein": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def without_credentials(text: str) -> str:
    """A path or URL without user, password and query.

    >>> without_credentials("s3://bucket/raw.jsonl.gz"), without_credentials("hf://user:token@a/b.csv")
    ('s3://bucket/raw.jsonl.gz', 'hf://***@a/b.csv')
    """
    is_url = "://" in text
    return CREDENTIALS.sub(lambda m: "***@" if m[0].endswith("@") else "***", text) if is_url else text
