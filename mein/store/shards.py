"""One Arrow file; damaged and missing ones.

One sentence for a file of a store that cannot be used.

One file of an encoded corpus: an Arrow record batch with facts and a checksum, mapped on reading.
"""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from mein.errors import DamagedFile
from mein.text.ragged import Ragged

LEFT_OUT = "`mein label` and `mein imitate` go on without it with --quarantine"


def damaged(path: Path | str) -> DamagedFile:
    """One sentence for a file that is not what was written."""
    return DamagedFile(f"{path} is damaged; restore it from a copy or make it again; {LEFT_OUT}.")


def missing(path: Path | str) -> DamagedFile:
    """One sentence for a file that is gone."""
    return DamagedFile(f"{path} is missing; restore it from a copy or make it again; {LEFT_OUT}.")


CHECKSUM = "checksum"
LIST_LIMIT = 2**31 - 1  # Arrow's lists count their values in 32 bits, its large lists in 64


def write_arrays(path: Path, columns: Mapping[str, Ragged | np.ndarray], facts: Mapping[str, str]) -> None:
    """Write columns of equal length and some facts about them."""
    arrays = {
        name: _from_ragged(column) if isinstance(column, Ragged) else _from_array(column)
        for name, column in columns.items()
    }
    batch = pa.record_batch(arrays)
    schema = batch.schema.with_metadata({**facts, CHECKSUM: str(_checksum(batch))})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def read_batch(path: Path, is_verified: bool = False) -> pa.RecordBatch:
    """The columns of a file, mapped into memory, once they have proved undamaged, here or before."""
    with _reading(path) as reader:
        if reader.num_record_batches != 1:
            raise damaged(path)
        batch = reader.get_batch(0)
        if not is_verified:
            batch.validate(full=True)
            if facts_of(batch.schema).get(CHECKSUM) != str(_checksum(batch)):
                raise damaged(path)
    return batch


def facts_of(schema: pa.Schema) -> dict[str, str]:
    """The facts that were written with columns."""
    metadata = schema.metadata or {}
    return {key.decode("utf-8"): value.decode("utf-8") for key, value in metadata.items()}


@contextmanager
def _reading(path: Path) -> Iterator[pa.RecordBatchFileReader]:
    try:
        with pa.memory_map(str(path)) as file:
            yield pa.ipc.open_file(file)
    except FileNotFoundError as error:
        raise missing(path) from error
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise damaged(path) from error


def to_ragged(column: pa.Array) -> Ragged:
    """A column of lists; the values stay in the file."""
    return Ragged(column.values.to_numpy(), column.offsets.to_numpy().astype(np.int64))


def to_array(column: pa.Array) -> np.ndarray:
    """A column of numbers (n,) or of number vectors (n, k); they stay in the file."""
    if not pa.types.is_fixed_size_list(column.type):
        numbers: np.ndarray = column.to_numpy()
        return numbers
    vectors: np.ndarray = column.values.to_numpy().reshape(len(column), column.type.list_size)
    return vectors


def _from_ragged(rows: Ragged) -> pa.Array:
    is_large = len(rows.values) > LIST_LIMIT
    list_array = pa.LargeListArray if is_large else pa.ListArray
    offsets = rows.offsets.astype(np.int64 if is_large else np.int32)
    kind = np.float32 if rows.values.dtype.kind == "f" else np.int32
    return list_array.from_arrays(pa.array(offsets), pa.array(rows.values.astype(kind, copy=False)))


def _from_array(array: np.ndarray) -> pa.Array:
    assert array.dtype in (np.float32, np.int64), array.dtype
    assert array.ndim in (1, 2), array.shape
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    return values if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, array.shape[1])


def _checksum(batch: pa.RecordBatch) -> int:
    checksum = zlib.crc32(str(batch.schema.remove_metadata()).encode("utf-8"))
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None:
                checksum = zlib.crc32(buffer, checksum)
    return checksum
