"""Cut the texts of a Parquet file into passages of so many words, each with its document's label.

For a transformer, which reads the beginning of a long document alone. Spaces and line ends become single
spaces; columns other than `text` and `label` are left out.

usage: scripts/passages.py WORDS data/imdb/train.parquet data/imdb-passages/train.parquet
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def passages(text: str, words: int) -> list[str]:
    """A text's words in passages of so many; a rest of less than an eighth of that is left out.

    >>> passages("a b c d e f g", words=3)
    ['a b c', 'd e f', 'g']
    >>> passages("a " * 16 + "b", words=16)[1:]
    []
    >>> passages("b", words=16)
    ['b']
    """
    all_words = text.split()
    cut = [all_words[start : start + words] for start in range(0, len(all_words), words)]
    return [" ".join(passage) for i, passage in enumerate(cut) if i == 0 or 8 * len(passage) >= words]


if __name__ == "__main__":
    if len(sys.argv) != 4 or not sys.argv[1].isdecimal() or int(sys.argv[1]) == 0:
        sys.exit(__doc__)
    size, source, target = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    documents = pq.read_table(source, columns=["text", "label"])
    rows = [row | {"text": cut} for row in documents.to_pylist() for cut in passages(row["text"], size)]
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=documents.schema), target)
    print(f"{len(documents):,} documents, {len(rows):,} passages")
