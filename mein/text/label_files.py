"""What a teacher says of each document of a shard: plain Parquet, a float column for each class.

Rows stand in the shard's order and columns go by the names of the classes, so that anybody can fill
such a file; ours also tell in their metadata whose word it is.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mein.data.labels import Label, listed
from mein.data.teacher import checked
from mein.errors import InputError
from mein.files import sha256_of
from mein.text.manifest import Shard, write_json
from mein.text.place import Place

EXPERT_COLUMN = "expert"  # p(y | X, Theta'), beside each shard of the unlabelled text
BY = b"mein.by"
LABELS, VERSION = "labels.json", 1


def label_file(shard_file: str) -> str:
    """The name of the label file beside a shard's file."""
    return shard_file.removesuffix(".arrow") + f".{EXPERT_COLUMN}.parquet"


def write_labels(path: Path, probs: np.ndarray, classes: Sequence[Label], by: str | None = None) -> None:
    """Write the probabilities (n, Y) of a shard, and whose they are, where that is known."""
    columns = {str(label): pa.array(probs[:, y]) for y, label in enumerate(classes)}
    table = pa.table(columns).replace_schema_metadata({} if by is None else {BY: by.encode("utf-8")})
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def read_labels(path: Path, name: str, documents: int, classes: Sequence[Label]) -> np.ndarray:
    """The probabilities (n, Y) of a shard, float32, in the classes' order; refuse anything else."""
    names = [str(label) for label in classes]
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        found = file.schema_arrow.names
        absent = [label for label in names if found.count(label) != 1]
        if not absent:
            columns = [file.read([label]).column(0).to_numpy() for label in names]
    except FileNotFoundError as problem:
        raise InputError(f"{name} is missing: label the store with `mein label`.") from problem
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise InputError(
            f"{name} is damaged or no Parquet file ({_first_line(problem)}): write it again, "
            "or remove it and label the store again."
        ) from problem
    if absent:
        raise InputError(
            f"{name} has no single column for the class {absent[0]!r} among {listed(found)}: "
            f"give one for each of {listed(names)}."
        )
    rows = file.metadata.num_rows
    if rows != documents:
        raise InputError(
            f"{name} holds {rows} rows, but its shard {documents} documents: "
            "give a row for each, in the shard's order."
        )
    try:
        probs = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name} holds something that is no number ({problem}): write floats.") from problem
    return checked(probs, documents, len(names), name)


def seal_labels(place: Place, shards: Sequence[Shard], classes: Sequence[Label]) -> None:
    """Write labels.json, which says that every document has its label, once."""
    sealed = []
    for shard in shards:
        file = label_file(shard.file)
        with place.reading(file) as path:
            read_labels(path, f"{place}/{file}", shard.documents, classes)
            facts = {"documents": shard.documents, "by": labelled_by(path), "sha256": sha256_of(path)}
            sealed.append({"file": file, **facts})
    write_json(place, LABELS, {"version": VERSION, "classes": list(classes), "shards": sealed})


def labelled_by(path: Path) -> str | None:
    """Whose labels a file holds, as we wrote it; none for a file of other make, or no such file."""
    try:
        by: bytes | None = (pq.read_schema(path).metadata or {}).get(BY)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return None if by is None else by.decode("utf-8", "replace")


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n", 1)[0].rstrip(".")
