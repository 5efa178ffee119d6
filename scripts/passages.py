"""Cut the documents of a Parquet file into passages of so many words, each with its document's label.

A transformer that is to judge short texts learns more from a review in passages than from its beginning.

usage: scripts/passages.py WORDS data/imdb/train.parquet data/imdb-passages/train.parquet
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def passages(text: str, words: int) -> list[str]:
    """A text's words in passages of so many, the last one shorter, but none of less than an eighth.

    >>> passages("a b c d e f g", words=3)
    ['a b c', 'd e f', 'g']
    >>> passages("a " * 16 + "b", words=16)[1:]
    []
    """
    all_words = text.split()
    cut = [all_words[start : start + words] for start in range(0, len(all_words), words)]
    return [" ".join(passage) for passage in cut if 8 * len(passage) >= words]


if __name__ == "__main__":
    size, source, target = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    documents = pq.read_table(source, columns=["text", "label"])
    texts, labels = (documents[name].to_pylist() for name in ("text", "label"))
    pairs = [
        (passage, label)
        for text, label in zip(texts, labels, strict=True)
        for passage in passages(text, size)
    ]
    cut_texts, cut_labels = zip(*pairs, strict=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": cut_texts, "label": cut_labels}), target)
    print(f"{len(texts):,} documents, {len(pairs):,} passages")
