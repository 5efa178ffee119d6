"""What a store says of itself: its shards with counts and checksums, in store.json, written last."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mein.errors import RunError
from mein.text.place import Place

VERSION = 2  # 1 had the length of each shard and no checksums; it is still read
MANIFEST = "store.json"


@dataclass(frozen=True)
class Shard:
    """One file of a store, with its counts and its checksum (none in stores of version 1)."""

    file: str
    documents: int
    words: int = 0
    pieces: int = 0
    bytes: int = 0
    sha256: str | None = None


@dataclass(frozen=True)
class Manifest:
    """The shards of a store, who encoded them, and facts about where they came from."""

    encoder: str
    shards: tuple[Shard, ...]
    pieces: int
    facts: Mapping[str, Any] = field(default_factory=dict)


def shard_file(number: int) -> str:
    """The name of a shard's file."""
    return f"shard-{number:05d}.arrow"


def write_manifest(place: Place, encoder: str, shards: Sequence[Shard], facts: Mapping[str, Any]) -> None:
    """Write store.json, which makes the files a store."""
    content = {
        "version": VERSION,
        "encoder": encoder,
        "documents": sum(shard.documents for shard in shards),
        "words": sum(shard.words for shard in shards),
        "pieces": sum(shard.pieces for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        **facts,
        "shards": [asdict(shard) for shard in shards],
    }
    write_json(place, MANIFEST, content)


def read_manifest(place: Place) -> dict[str, Any]:
    """store.json as it is, of a version that we know."""
    try:
        content = read_json(place, MANIFEST)
    except FileNotFoundError as problem:
        raise RunError(
            f"{place} holds no finished store ({MANIFEST} is missing); encode the text again."
        ) from problem
    version = content.get("version")
    if not isinstance(version, int):
        raise damaged_manifest(place)
    if version > VERSION:
        raise RunError(
            f"{place}/{MANIFEST} has version {version}, but this mein reads up to {VERSION}; update mein."
        )
    return content


def manifest_of(place: Place, content: Mapping[str, Any]) -> Manifest:
    """What a store.json of any version says."""
    try:
        shards = tuple(_shard(number, shard) for number, shard in enumerate(content.get("shards", ())))
        pieces, encoder = int(content.get("pieces", 0)), str(content.get("encoder"))
    except (TypeError, ValueError, AttributeError) as problem:
        raise damaged_manifest(place) from problem
    known = {"version", "encoder", "documents", "words", "pieces", "bytes", "shards"}
    return Manifest(encoder, shards, pieces, {key: content[key] for key in content if key not in known})


def _shard(number: int, content: int | dict[str, Any]) -> Shard:
    return Shard(**content) if isinstance(content, dict) else Shard(shard_file(number), int(content))


def write_json(place: Place, name: str, content: Mapping[str, Any]) -> None:
    """Write a small JSON file with a shard a line, so that people can look at it."""
    shards = ",\n".join(json.dumps(shard) for shard in content["shards"])
    rest = {key: value for key, value in content.items() if key != "shards"}
    text = json.dumps(rest, ensure_ascii=False)[:-1] + f', "shards": [\n{shards}\n]}}\n'
    with place.writing(name) as path:
        path.write_text(text, encoding="utf-8")


def read_json(place: Place, name: str) -> dict[str, Any]:
    """A small JSON file, an object."""
    try:
        content = json.loads(place.read(name))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as problem:
        raise damaged_manifest(place, name) from problem
    if not isinstance(content, dict):
        raise damaged_manifest(place, name)
    return content


def damaged_manifest(place: Place, name: str = MANIFEST) -> RunError:
    """One sentence for a manifest that nobody can read."""
    return RunError(f"{place}/{name} is damaged; restore it from a copy or train again.")
