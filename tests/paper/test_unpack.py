"""Archives as streams: honest ones are read; links, damage, and too many bytes are refused."""

import bz2
import gzip
import io
import lzma
import os
import random
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mein.errors import InputError
from paper.datasets.archive import MOST, bounded_lines, members, read_whole
from tests.support.reading import put

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def tar(*entries: tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name: str, kind: bytes, target: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return buffer.getvalue()


def zipped(*entries: tuple[str, bytes], mode: int = 0, deflated: bool = True) -> bytes:
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, content in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, kind)
    return buffer.getvalue()


def read(path: Path, most: int = MOST) -> dict[str, bytes]:
    return {member.name: member.stream.read() for member in members(path, most)}


def refuses(path: Path, sentence: str, most: int = MOST) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(path, most)
    assert "\n" not in str(caught.value)


# Honest archives.


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_are_read_in_every_format_and_compression(tmp_path: Path, suffix: str, form: int) -> None:
    long = "a/" + "b" * 80 + "/" + "c" * 60 + ".txt"
    entries = [("./a/1.txt", b"one"), (long, b"x" * 513), ("empty", b"")]
    path = put(tmp_path, "a.tar" + suffix, PACK[suffix](tar(*entries, form=form)))
    assert read(path) == {"a/1.txt": b"one", long: b"x" * 513, "empty": b""}


def test_a_name_beyond_ascii_is_kept(tmp_path: Path) -> None:
    assert read(put(tmp_path, "a.tar", tar(("fünf.txt", b"5")))) == {"fünf.txt": b"5"}


def test_zips_are_read_and_their_folders_left_out(tmp_path: Path) -> None:
    path = put(tmp_path, "a.zip", zipped(("d/", b""), ("d/1.xml", b"one"), ("2.xml", b"two")))
    assert read(path) == {"d/1.xml": b"one", "2.xml": b"two"}


def test_a_member_need_not_be_read_to_its_end(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tar", tar(("1", b"x" * 5000), ("2", b"two")))
    assert [member.stream.read(2) for member in members(path)] == [b"xx", b"tw"]


def test_a_folder_is_read_in_order_with_the_archives_in_it(tmp_path: Path) -> None:
    put(tmp_path, "b.zip", zipped(("z.xml", b"z")))
    put(tmp_path, "sub/c.txt.gz", gzip.compress(b"c"))
    put(tmp_path, "a.tar.xz", lzma.compress(tar(("y.txt", b"y"), ("inner.zip", zipped(("q", b"q"))))))
    assert list(read(tmp_path)) == ["y.txt", "inner.zip", "z.xml", "sub/c.txt"]


def test_one_plain_file_is_its_own_member(tmp_path: Path) -> None:
    assert read(put(tmp_path, "a.txt", b"one")) == {"a.txt": b"one"}
    assert read(put(tmp_path, "a.jsonl.xz", lzma.compress(b"1") + lzma.compress(b"2"))) == {"a.jsonl": b"12"}


def test_lines_and_complete_documents() -> None:
    assert list(bounded_lines(io.BytesIO(b"one\r\n\ntwo"), "a")) == [b"one", b"", b"two"]
    assert read_whole(io.BytesIO(b"one\ntwo"), "a") == b"one\ntwo"


def test_memory_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    """40 MB come out of it; a few hundred kilobytes are held."""
    chance = random.Random(0)
    block = chance.randbytes(1 << 20)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", compresslevel=1) as archive:
        for number in range(40):
            info = tarfile.TarInfo(str(number))
            info.size = len(block)
            archive.addfile(info, io.BytesIO(block))
    tracemalloc.start()
    try:
        for member in members(tmp_path / "a.tar.gz"):
            while member.stream.read(1 << 14):
                pass
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


# Paths.


@pytest.mark.parametrize("name", ["../up", "a/../../up"])
def test_paths_that_lead_out_of_a_tar_are_refused(tmp_path: Path, name: str) -> None:
    refuses(put(tmp_path, "a.tar", tar((name, b"x"))), "would be extracted to .*, which is outside the dest")


# Links and devices.


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = put(tmp_path, "a.tar", special("a.txt", kind, "b.txt"))
    refuses(path, r"a\.tar holds 'a.txt', which is a link or a device: it is not read")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (tarfile.SYMTYPE, "link to an absolute path"),
        (tarfile.CHRTYPE, "special"),
        (tarfile.FIFOTYPE, "special"),
    ],
)
def test_what_tarfile_filters_out_is_refused(tmp_path: Path, kind: bytes, words: str) -> None:
    path = put(tmp_path, "a.tar", special("a.txt", kind, "/etc/passwd"))
    refuses(path, rf"a\.tar is truncated or damaged \('a.txt' is a {words}.*\); fetch it again")


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(tmp_path) == {}


# Size.


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_what_is_too_large_is_refused(tmp_path: Path, suffix: str) -> None:
    long, sentence = b"x" * (1 << 19), "holds too many bytes for a data set: fetch it from its official home"
    refuses(put(tmp_path, "a" + suffix, PACK[suffix](long)), sentence, 1 << 18)
    path = put(tmp_path, "a.tar" + suffix, PACK[suffix](tar(("a", long), ("b", long))))
    refuses(path, sentence, (1 << 20) - 1)
    assert len(read(path, 1 << 20)) == 2


def test_a_zip_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a.zip", zipped(*((str(number), bytes(20_000)) for number in range(5))))
    refuses(path, "holds too many bytes for a data set", 99_999)
    assert len(read(path, 100_000)) == 5


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"a\.txt has a line of 4,096 bytes or more: it is no text file"):
        list(bounded_lines(io.BytesIO(b"x" * 5000), "a.txt", 4096))
    with pytest.raises(InputError, match=r"a\.txt has 4,096 bytes or more, which is too long for a document"):
        read_whole(io.BytesIO(b"x" * 5000), "a.txt", 4096)


# Damage.


@pytest.mark.parametrize("suffix", PACK)
def test_a_truncated_tar_is_refused(tmp_path: Path, suffix: str) -> None:
    content = PACK[suffix](tar(("a", random.Random(0).randbytes(20_000))))
    for kept in (len(content) - 1 if suffix else 10_240, len(content) // 2):
        refuses(put(tmp_path, "a.tar" + suffix, content[:kept]), "is truncated or damaged .* fetch it again")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_a_tar_is_read_to_the_checksum_behind_its_last_member(tmp_path: Path, suffix: str) -> None:
    noise = random.Random(0).randbytes(20_000)
    content = PACK[suffix](tar(("a", noise)) + bytes(300_000))
    assert read(put(tmp_path, "a.tar" + suffix, content)) == {"a": noise}
    refuses(put(tmp_path, "b.tar" + suffix, content[:-1]), "is truncated or damaged")


def test_a_zip_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    content = zipped(("a", b"hello world"), deflated=False).replace(b"hello", b"jello")
    refuses(put(tmp_path, "a.zip", content), "truncated or damaged .*CRC")
    refuses(put(tmp_path, "b.zip", content[:30]), "truncated or damaged")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped(("a", b"x")))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    refuses(put(tmp_path, "a.zip", bytes(content)), "filename='a'.* is encrypted, password required")


def test_what_is_not_there(tmp_path: Path) -> None:
    refuses(tmp_path / "nothing.tar", r"nothing\.tar does not exist; check the path")
