"""A data format is one entry in one table, which all reading, writing, checking, and listing uses."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mein.data import formats
from mein.data.audit import audit
from mein.data.columns import ColumnsConfig
from mein.data.compression import COMPRESSIONS
from mein.data.files import Choose, Chunk, File, Format, open_lines
from mein.data.formats import FORMATS, find_files, format_of, open_writer
from mein.data.readers import read_documents, read_tables
from mein.errors import InputError
from mein.predict.predict import predict_file
from tests.support.reviews import LABELS, RAW, TEXTS, tiny

ROWS = "text=good\tlabel=pos\ntext=bad\tlabel=neg\n"


def pair_chunks(file: File, choose: Choose | None) -> Iterator[Chunk]:
    """Rows of `name=value` between tabs, one row a chunk."""
    with open_lines(file) as lines:
        for line in lines:
            row = dict(pair.split("=", 1) for pair in line.decode("utf-8").rstrip("\n").split("\t"))
            names = list(row) if choose is None else choose(list(row))
            yield {name: [row[name]] for name in names}


class PairWriter:
    """Writes what `pair_chunks` reads."""

    def __init__(self, name: str, sink: Any) -> None:
        self.sink = sink

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows."""
        for row in batch.to_pylist():
            self.sink.write(("\t".join(f"{name}={value}" for name, value in row.items()) + "\n").encode())

    def close(self) -> None:
        """Nothing ends the file."""


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Format:
    """A format of this test, in the table."""
    made = Format("pairs", (".pairs", ".kv"), pair_chunks, PairWriter, has_types=False)
    monkeypatch.setattr(formats, "FORMATS", [*FORMATS, made])
    return made


def test_a_format_that_is_in_no_table_is_unknown() -> None:
    with pytest.raises(InputError, match=r"a\.pairs has an unknown format; name it \.csv, .*, \.txt \("):
        format_of("a.pairs")


def test_a_new_format_is_read(pairs: Format, tmp_path: Path) -> None:
    (tmp_path / "a.pairs").write_text(ROWS, encoding="utf-8")
    (tmp_path / "b.kv.gz").write_bytes(gzip.compress(b"text=nan\tlabel=NaN\n"))
    assert [file.format for file in find_files(tmp_path)] == [pairs, pairs]
    documents = list(read_documents(tmp_path / "a.pairs", ColumnsConfig(), labeled=True))
    assert [(one.texts, one.labels) for one in documents] == [(["good"], ["pos"]), (["bad"], ["neg"])]
    assert [batch.to_pylist() for batch in read_tables(str(tmp_path / "b.kv.gz"))] == [
        [{"text": "nan", "label": "NaN"}]
    ]
    with pytest.raises(InputError, match=r"b\.kv\.gz row 1 has no label"):  # since the format has no types
        list(read_documents(tmp_path / "b.kv.gz", ColumnsConfig(), labeled=True))


def test_a_new_format_is_written(pairs: Format, tmp_path: Path) -> None:
    with open_writer(tmp_path / "out.pairs") as writer:
        writer.write(pa.table({"text": ["good", "bad"], "label": ["pos", "neg"]}))
    assert (tmp_path / "out.pairs").read_text(encoding="utf-8") == ROWS


def test_a_new_format_is_listed_where_formats_are(pairs: Format, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"a\.doc has an unknown format; name it .*, \.txt, \.pairs, \.kv \("
    ):
        format_of("a.doc")
    with (
        pytest.raises(InputError, match=r"cannot hold a table; name it \.csv, .*, \.parquet or \.pairs\."),
        open_writer(tmp_path / "a.txt"),
    ):
        pass


def test_a_new_format_is_checked(pairs: Format, tmp_path: Path) -> None:
    (tmp_path / "train.pairs").write_text(ROWS * 2, encoding="utf-8")
    (tmp_path / "raw.pairs").write_text("body=fine\tid=1\n", encoding="utf-8")
    found = audit(
        str(tmp_path / "train.pairs"), str(tmp_path / "raw.pairs"), None, None, ColumnsConfig(text="text")
    )
    assert found.parts["labeled"].class_counts == {"neg": 2, "pos": 2}
    assert f"{tmp_path}/raw.pairs lacks the column 'text': 'body' is taken for the text." in found.notes


def test_a_new_format_is_predicted(pairs: Format, tmp_path: Path) -> None:
    (tmp_path / "in.pairs").write_text(ROWS, encoding="utf-8")
    (tmp_path / "in.csv").write_text("text,label\ngood,pos\nbad,neg\n", encoding="utf-8")
    model = tiny().fit(TEXTS, LABELS, unlabeled=RAW).model_
    for ending in ("pairs", "csv"):
        assert predict_file(model, str(tmp_path / f"in.{ending}"), tmp_path / f"{ending}-out.pairs") == 2
    written = (tmp_path / "pairs-out.pairs").read_text(encoding="utf-8")
    assert written == (tmp_path / "csv-out.pairs").read_text(encoding="utf-8")
    assert written.startswith("text=good\tlabel=pos\tpredicted_label=")


def test_the_guide_lists_every_ending() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide.md").read_text(encoding="utf-8")
    endings = [ending for known in FORMATS for ending in known.endings]
    assert [ending for ending in [*endings, *COMPRESSIONS] if f"`{ending}`" not in guide] == []
