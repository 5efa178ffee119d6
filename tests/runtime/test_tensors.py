"""Tensors on disk come back bit for bit, or are refused with one sentence; never half, never changed."""

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from mein.errors import RunError
from mein.runtime.tensors import FORMAT_VERSION, load_facts, load_tensors, save_tensors

TENSORS = {
    "weights": torch.arange(6.0).reshape(2, 3) / 7,
    "nothing": torch.zeros(0, 3),
    "number": torch.tensor(3.5),
    "counts": torch.tensor([1, 2**40]),
    "halves": torch.tensor([0.1, -0.0, float("nan")], dtype=torch.bfloat16),
}
FACTS = {"gates": [0.1, 2.5e-17], "temperature": 1.3, "best": {"error": 1 / 3}}


def saved(path: Path) -> Path:
    save_tensors(path / "x.safetensors", TENSORS, FACTS)
    return path / "x.safetensors"


def rewritten(path: Path, change: dict[str, Any]) -> None:
    """The file with another header, as a newer version or a hand might leave it."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["mein"]) | change
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={"mein": json.dumps(header)})


def assert_same(tensors: dict[str, Tensor]) -> None:
    assert sorted(tensors) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        assert (tensors[name].dtype, tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(tensors[name].flatten().view(torch.uint8), tensor.flatten().view(torch.uint8))


def test_tensors_and_facts_come_back_as_they_were(tmp_path: Path) -> None:
    tensors, facts = load_tensors(saved(tmp_path))
    assert facts == FACTS
    assert_same(tensors)


def test_a_tensor_without_elements_comes_back(tmp_path: Path) -> None:
    save_tensors(tmp_path / "empty.safetensors", {"none": torch.from_numpy(np.zeros(0, np.int64))}, {})
    tensors, _ = load_tensors(tmp_path / "empty.safetensors")
    assert (tensors["none"].shape, tensors["none"].dtype) == ((0,), torch.int64)


def test_facts_come_back_without_the_tensors(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # of a tensor
    path.write_bytes(content)
    assert load_facts(path) == FACTS
    with pytest.raises(RunError, match="damaged"):
        load_tensors(path)


@pytest.mark.parametrize("mask", [0o022, 0o027])
def test_a_file_is_as_readable_as_any_other(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        (tmp_path / "plain").touch()
        assert saved(tmp_path).stat().st_mode == (tmp_path / "plain").stat().st_mode
    finally:
        os.umask(before)


def test_a_slice_and_a_parameter_are_saved_as_what_they_show(tmp_path: Path) -> None:
    weights = torch.arange(12.0).reshape(3, 4)
    save_tensors(tmp_path / "x", {"column": weights[:, 1], "p": torch.nn.Parameter(weights)}, {})
    tensors, _ = load_tensors(tmp_path / "x")
    assert tensors["column"].tolist() == [1.0, 5.0, 9.0]
    assert torch.equal(tensors["p"], weights)


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    first = saved(tmp_path).read_bytes()
    assert saved(tmp_path).read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for length in [0, 1, 7, 8, 9, len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(RunError, match=r"x\.safetensors is damaged or was changed by another program"):
            load_tensors(path)


def test_a_changed_bit_changes_no_tensor_and_no_fact_unseen(tmp_path: Path) -> None:
    """Only what means nothing may change: a space in the header, or an older version's number."""
    path = saved(tmp_path)
    content = path.read_bytes()
    refused = 0
    for position in range(8, len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            tensors, facts = load_tensors(path)
        except RunError:
            refused += 1
            continue
        assert facts == FACTS
        assert_same(tensors)
    assert refused > 0.98 * (len(content) - 8)


def test_changed_facts_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    rewritten(path, {"facts": FACTS | {"temperature": 1.4}})
    with pytest.raises(RunError, match="damaged"):
        load_tensors(path)


@pytest.mark.parametrize("change", [{"facts": None}, {"version": "one"}, {"version": None}, {"sha256": 1}])
def test_a_broken_header_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = saved(tmp_path)
    rewritten(path, change)
    with pytest.raises(RunError, match="damaged"):
        load_tensors(path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    rewritten(path, {"version": FORMAT_VERSION + 1})
    with pytest.raises(RunError, match=r"has format 4, this mein reads 3: upgrade mein\."):
        load_tensors(path)


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(RunError, match="damaged"):
        load_tensors(tmp_path / "x.safetensors")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"x\.safetensors is missing: restore it from a copy of the run\."):
        load_tensors(tmp_path / "x.safetensors")


def test_a_disk_that_fills_up_leaves_the_old_file_and_one_sentence(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(
            RunError, match=r"Cannot write .*x\.safetensors: it is larger than the system allows: raise"
        ):
            save_tensors(path, {"big": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]
