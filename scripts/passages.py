"""Cut the texts of a Parquet file into passages of so many words, each with its document's label.

For a transformer, which uses only the beginning of a long document. Spaces and line ends become single
spaces; columns other than `text` and `label` are left out.

usage: scripts/passages.py WORDS imdb/train.parquet passages/train.parquet [--last] [--documents N]
"""

import argparse
from pathlib import Path

import numpy as np
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


def ending(text: str, words: int) -> list[str]:
    """A text's last words, so many of them, where most reviews come to their verdict.

    >>> ending("a b c d e f g", words=3)
    ['e f g']
    >>> ending("a b", words=3)
    ['a b']
    >>> ending("", words=3)
    []
    """
    last = text.split()[-words:]
    return [" ".join(last)] if last else []


def natural(given: str) -> int:
    """A number from 1 on."""
    number = int(given)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("words", type=natural, help="words in a passage")
    arguments.add_argument("source", type=Path, help="a Parquet file with text and label")
    arguments.add_argument("target", type=Path, help="where the passages go")
    arguments.add_argument("--last", action="store_true", help="only the last words of each document")
    arguments.add_argument("--documents", type=natural, help="largest number of documents, drawn by seed 0")
    given = arguments.parse_args()
    documents = pq.read_table(given.source, columns=["text", "label"])
    if given.documents is not None:
        drawn = np.random.default_rng(0).permutation(len(documents))[: given.documents]
        documents = documents.take(np.sort(drawn))
    cut = ending if given.last else passages
    rows = [row | {"text": part} for row in documents.to_pylist() for part in cut(row["text"], given.words)]
    given.target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=documents.schema), given.target)
    print(f"{len(documents):,} documents, {len(rows):,} passages")
