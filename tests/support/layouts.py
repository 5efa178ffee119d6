"""Small files in the official layouts of the benchmarks, and their documents as lists."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

from paper.datasets import Row, find_benchmark
from tests.support.reading import put

REAL = Path(__file__).parents[3] / "shared" / "data"

NEWSITEM = """<?xml version="1.0" encoding="iso-8859-1" ?>
<newsitem itemid="{number}" id="root" date="{date}" xml:lang="en">
<title>USA: {headline}</title>
<headline>{headline}</headline>
<dateline>NEW YORK {date}</dateline>
<text>
<p>First &quot;paragraph&quot; of {number}.</p>
<p>Caf\xe9.</p>
</text>
<copyright>(c) Reuters Limited 1996</copyright>
<metadata>
<codes class="bip:countries:1.0">
  <code code="M11"></code>
</codes>
<codes class="bip:topics:1.0">
{codes}
</codes>
<dc element="dc.publisher" value="Reuters Holdings Plc"/>
</metadata>
</newsitem>
"""
STORY = """<REUTERS TOPICS="{usable}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="{number}">
<DATE>26-FEB-1987 15:01:01.79</DATE>
<TOPICS>{topics}</TOPICS>
<PLACES><D>usa</D></PLACES>
<UNKNOWN>
&#5;&#5;&#5;C T</UNKNOWN>
<TEXT>&#2;
<TITLE>TITLE {number} &lt;XY></TITLE>
<DATELINE>    NEW YORK, Feb 26 - </DATELINE>{body}</TEXT>
</REUTERS>
"""


def rows(name: str, source: Path, seed: int = 0) -> list[Row]:
    """All documents of a source."""
    return list(find_benchmark(name).read(source, seed))


def part(found: list[Row], name: str) -> list[tuple[str, object]]:
    """Texts and labels of one part."""
    return [(row.text, row.label) for row in found if row.part == name]


def imdb_folder(folder: Path) -> Path:
    """Reviews on both sides of the borders of dev."""
    for name in (
        "train/pos/0_9.txt",
        "train/pos/10620_8.txt",
        "train/pos/10621_10.txt",
        "train/neg/10624_1.txt",
        "train/neg/10625_2.txt",
        "train/neg/12499_3.txt",
        "train/unsup/0_0.txt",
        "train/unsup/49999_0.txt",
        "test/pos/12499_7.txt",
        "test/neg/2_4.txt",
        "test/neg/10_4.txt",
    ):
        put(folder, f"aclImdb/{name}", f"{name}<br />fünf".encode())
    for name in ("README", "imdb.vocab", "train/urls_pos.txt", "train/labeledBow.feat"):
        put(folder, f"aclImdb/{name}", b"0 1:2 \xff")
    return folder / "aclImdb"


def tarred(folder: Path, path: Path) -> Path:
    """A folder as a tar.gz, its last files first."""
    with tarfile.open(path, "w:gz") as archive:
        for entry in sorted(folder.rglob("*"), reverse=True):
            archive.add(entry, entry.relative_to(folder.parent).as_posix(), recursive=False)
    return path


def newsitem(number: int, date: str, *codes: str) -> bytes:
    """A story of RCV1 as Reuters wrote it, in Latin-1."""
    listed = "\n".join(
        f'  <code code="{code}">\n    <editdetail attribution="Reuters BIP Coding Group"/>\n  </code>'
        for code in codes
    )
    return NEWSITEM.format(number=number, date=date, headline=f"Head {number}", codes=listed).encode(
        "latin-1"
    )


def rcv1_zips(folder: Path, *stories: bytes) -> Path:
    """A folder with a zip a story, as the discs have a zip a day."""
    for number, story in enumerate(stories):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{number}newsML.xml", story)
        put(folder, f"{number}.zip", buffer.getvalue())
    put(folder, "codes/topic_codes.txt", b"; CODE\tDESCRIPTION\n")
    return folder


def rcv1_tokens(folder: Path) -> Path:
    """The files of LYRL2004, gzipped as they are published."""
    train = b"".join(b".I %d\n.W\nstem%d recov\nrecov\n\n" % (n, n) for n in range(2286, 2306))
    for name, content in {
        "lyrl2004_tokens_train.dat.gz": train,
        "lyrl2004_tokens_test_pt0.dat.gz": b".I 26151\n.W\nbank bank\n\n.I 26152\n.W\nship\n\n",
        "lyrl2004_tokens_test_pt1.dat.gz": b".I 30000\n.W\ngold\n\n.I 30001\n.W\ntin",
    }.items():
        put(folder, name, gzip.compress(content))
    lines = [f"{code} {n} 1" for n in range(2286, 2306) for code in ("CCAT", "C15", "C151")]
    lines += ["C15 26151 1", "M11 26151 1", "MCAT 26152 1", "M14 26152 1", "M141 26152 1", "GCAT 30000 1"]
    put(folder, "rcv1-v2.topics.qrels.gz", gzip.compress("\n".join(lines).encode()))
    return folder


def story(number: int, split: str, topics: list[str], body: bool = True, usable: str = "YES") -> str:
    """A story of Reuters-21578."""
    inner = f"<BODY>Body {number} &amp; more.\n Reuter\n&#3;</BODY>" if body else ""
    listed = "".join(f"<D>{topic}</D>" for topic in topics)
    return STORY.format(usable=usable, split=split, number=number, topics=listed, body=inner)


def sgm_folder(folder: Path, *stories: str) -> Path:
    """Two files of the official collection."""
    head = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
    half = len(stories) // 2
    put(folder, "reut2-000.sgm", (head + "".join(stories[:half])).encode("latin-1"))
    put(folder, "reut2-001.sgm", (head + "".join(stories[half:])).encode("latin-1"))
    put(folder, "lewis.dtd", b"<!ELEMENT LEWIS (REUTERS+)>")
    return folder
