"""Archives are hostile until checked: each attack is refused with one sentence, honest ones are read."""

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mein.errors import InputError
from paper.datasets.archive import Limits, bounded_lines, members, read_whole
from tests.support.reading import put

SMALL = Limits(members=5, total=1 << 20, ratio=20, free=1 << 16, line=1 << 12)
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


def read(path: Path, limits: Limits = SMALL) -> dict[str, bytes]:
    return {member.name: member.stream.read() for member in members(path, limits)}


def refuses(path: Path, sentence: str, limits: Limits = SMALL) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        read(path, limits)
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
    assert [member.stream.read(2) for member in members(path, SMALL)] == [b"xx", b"tw"]


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


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up", "a/../../up", "..\\up", "C:\\up", "c:/up", "\\\\host\\up", "a\x1b[2J"]
)
@pytest.mark.parametrize("make", [tar, zipped])
def test_paths_that_lead_out_are_refused(
    tmp_path: Path, make: Callable[[tuple[str, bytes]], bytes], name: str
) -> None:
    refuses(put(tmp_path, "a.bin", make((name, b"x"))), "a.bin holds the path .* leads out of it")


def test_a_path_in_an_extended_header_is_checked_too(tmp_path: Path) -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        content = tar(("a/" * 60 + "../" * 61 + "up", b"x"), form=form)
        refuses(put(tmp_path, "a.tar", content), "leads out of it")


# Links and devices.


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.GNUTYPE_SPARSE,
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = put(tmp_path, "a.tar", special("a.txt", kind, "/etc/passwd"))
    refuses(path, r"a\.tar holds 'a.txt', which is a link or a device: it is not read")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, kind: int) -> None:
    path = put(tmp_path, "a.zip", zipped(("a.txt", b"/etc/passwd"), mode=kind | 0o777))
    refuses(path, r"a\.zip holds 'a.txt', which is a link or a device: it is not read")


def test_links_in_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.txt").symlink_to("/etc/passwd")
    refuses(tmp_path / "set", r"a\.txt is a link; put the file itself there")


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(tmp_path) == {}


# Bombs.


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_a_file_that_swells_is_refused(tmp_path: Path, suffix: str) -> None:
    zeros = bytes(1 << 19)
    refuses(put(tmp_path, "a" + suffix, PACK[suffix](zeros)), "may be a decompression bomb")
    refuses(put(tmp_path, "a.tar" + suffix, PACK[suffix](tar(("a", zeros)))), "may be a decompression bomb")


def test_a_zip_that_swells_is_refused_in_one_member_or_in_many(tmp_path: Path) -> None:
    refuses(put(tmp_path, "a.zip", zipped(("a", bytes(1 << 19)))), "may be a decompression bomb")
    many = zipped(*((str(number), bytes(20_000)) for number in range(5)))
    refuses(put(tmp_path, "a.zip", many), "may be a decompression bomb")


def test_what_is_skipped_in_a_tar_counts(tmp_path: Path) -> None:
    path = put(tmp_path, "a.tar.gz", gzip.compress(tar(("a", bytes(1 << 19)), ("b", b"x"))))
    with pytest.raises(InputError, match="decompression bomb"):
        list(members(path, SMALL))


def test_too_large_in_all_is_refused_however_honest(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(1 << 20)
    refuses(put(tmp_path, "a.tar", tar(("a", content))), "holds more than 1,048,576 bytes")


@pytest.mark.parametrize("make", [tar, zipped])
def test_too_many_members_are_refused(tmp_path: Path, make: Callable[..., bytes]) -> None:
    entries = [(str(number), b"") for number in range(6)]
    refuses(put(tmp_path, "a.bin", make(*entries)), "a.bin holds more than 5 files: it is not read")
    assert len(read(put(tmp_path, "a.bin", make(*entries[:5])))) == 5


def test_too_many_files_in_a_folder_are_refused(tmp_path: Path) -> None:
    for number in range(6):
        put(tmp_path, f"{number}.txt", b"")
    refuses(tmp_path, "holds more than 5 files")


def test_a_huge_extended_header_is_refused_unread(tmp_path: Path) -> None:
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 1 << 33
        path = put(tmp_path, "a.tar", info.tobuf(tarfile.GNU_FORMAT))
        refuses(path, "has a header of 8,589,934,592 bytes, which no valid archive has")


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.size = -1
    refuses(put(tmp_path, "a.tar", info.tobuf(tarfile.GNU_FORMAT)), "it is not read|damaged")


def test_an_xz_that_asks_for_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    indexer = lzma.LZMACompressor(filters=filters)
    path = put(tmp_path, "a.xz", indexer.compress(b"x") + indexer.flush())
    refuses(path, "[Mm]emory usage limit")


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"a\.txt has a line of 4,096 bytes or more: it is no text file"):
        list(bounded_lines(io.BytesIO(b"x" * 5000), "a.txt", SMALL))
    with pytest.raises(InputError, match=r"a\.txt has 4,096 bytes or more, which is too long for a document"):
        read_whole(io.BytesIO(b"x" * 5000), "a.txt", SMALL)


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
    refuses(put(tmp_path, "a.zip", bytes(content)), "'a', which is encrypted: decrypt the archive first")


def test_what_is_not_there(tmp_path: Path) -> None:
    refuses(tmp_path / "nothing.tar", r"nothing\.tar does not exist; check the path")
