"""Pack the Parquet files of a data set for a GPU host: IMDB's are 36 MB then, instead of 57.

usage: scripts/carry_data.py pack data/imdb .carry/imdb
       scripts/carry_data.py unpack .carry/imdb data/imdb    (on the host)
"""

import io
import lzma
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq


def pack(path: Path, folder: Path) -> None:
    """xz packs text better than Parquet's own codecs do, if these have not been at it before."""
    plain = io.BytesIO()
    pq.write_table(pq.read_table(path), plain, compression="none", use_dictionary=False)
    (folder / f"{path.name}.xz").write_bytes(lzma.compress(plain.getvalue(), preset=9))


def unpack(path: Path, folder: Path) -> None:
    (folder / path.stem).write_bytes(lzma.decompress(path.read_bytes()))


if __name__ == "__main__":
    todo, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    target.mkdir(parents=True, exist_ok=True)
    work, pattern = {"pack": (pack, "*.parquet"), "unpack": (unpack, "*.parquet.xz")}[todo]
    with ProcessPoolExecutor() as processes:
        paths = sorted(source.glob(pattern))
        list(processes.map(work, paths, [target] * len(paths)))
