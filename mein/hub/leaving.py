"""A network left in a folder as transformers leaves it, for everybody's programs and for `expert.model`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mein.hub.facts import read_facts
from mein.hub.folder import filling, load_tokenizer, sync
from mein.hub.library import transformers_quietly
from mein.hub.source import CONFIG, POOLING

TEMPORARY = ".leaving"  # where its files lie until all are written


def leave(network: nn.Module, weights: Mapping[str, Tensor], fetched: Path, folder: Path) -> None:
    """Leave a network with these weights in a folder, with tokenizer and pooling of the `fetched` one.

    Its config.json comes last: without it nobody takes the folder for a model.
    """
    with filling(folder / TEMPORARY, folder) as temporary:
        (temporary / POOLING).parent.mkdir()
        with transformers_quietly():
            _tokenizer(fetched).save_pretrained(temporary)
            network.save_pretrained(temporary, state_dict=dict(weights))  # type: ignore[operator]
        text = json.dumps({"pooling_mode": read_facts(fetched).pooling}, indent=2)
        (temporary / POOLING).write_text(text + "\n", encoding="utf-8")
        sync(temporary)
        _move(temporary, folder)


def _tokenizer(fetched: Path) -> Any:
    """The fetched tokenizer, which is told how much the network can read."""
    tokenizer, longest = load_tokenizer(fetched, str(fetched)), read_facts(fetched).longest
    if longest is not None:
        tokenizer.model_max_length = longest
    return tokenizer


def _move(temporary: Path, folder: Path) -> None:
    """All files of one folder to the other, config.json last."""
    files = [path for path in temporary.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path == temporary / CONFIG):
        target = folder / path.relative_to(temporary)
        target.parent.mkdir(exist_ok=True)
        path.replace(target)
