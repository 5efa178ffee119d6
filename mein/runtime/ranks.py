"""Which of several processes this is, and what they send each other.

torchrun starts them and gives each its rank; a process by itself is rank 0 of 1, and nothing here costs it.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mein.errors import LostProcess

if TYPE_CHECKING:
    from torch import Tensor

RELEASE_SECONDS = 0.2  # for what takes microseconds once Python's lock is free
LONGEST_WAIT = timedelta(days=1)  # the others wait while the first prepares; a death is noticed at once


def rank() -> int:
    """This process's number, from 0; 0 where it is the only one."""
    return int(_group().get_rank()) if is_joined() else int(os.environ.get("RANK", "0"))


def world() -> int:
    """How many processes work together."""
    return int(_group().get_world_size()) if is_joined() else int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this is the process that writes and prints for all."""
    return rank() == 0


def is_restarted() -> bool:
    """Whether torchrun started the processes again after one of them was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def local_rank() -> int:
    """This process's number among those of its machine: that of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_joined() -> bool:
    """Whether the processes are joined; found without importing torch, which takes a second."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()


def join() -> None:
    """Meet the other processes, where there are any: over gloo, GPUs over NCCL."""
    if is_joined() or world() == 1:
        return
    import torch

    has_gpus = torch.cuda.is_available() and torch.cuda.device_count() > local_rank()
    if has_gpus:
        torch.cuda.set_device(local_rank())
    backend = "cpu:gloo,cuda:nccl" if has_gpus else "gloo"
    with _lost_means_the_end():
        _group().init_process_group(
            backend, store=_store(), rank=rank(), world_size=world(), timeout=LONGEST_WAIT
        )


def leave() -> None:
    """Part from the others.

    Subtle: gloo's threads outlive the group, and one that still has to release the tensors of the last
    exchange, which takes Python's lock, aborts a process that ends meanwhile. So they are given the time.
    """
    if is_joined():
        _group().destroy_process_group()
        time.sleep(RELEASE_SECONDS)


def may_complain() -> bool:
    """Whether nobody has complained before: of one error, one sentence is enough."""
    if world() == 1 or not is_joined():
        return is_first()
    try:
        return int(_store().add("mein complaints", 1)) == 1
    except RuntimeError:  # the process that kept the store is gone, and has complained
        return False


def barrier() -> None:
    """Wait until every process is here."""
    if world() > 1:
        import torch

        join()
        add_up(torch.zeros(1, device=_exchange_device()))


@contextmanager
def first_goes_ahead() -> Iterator[None]:
    """Let the first do what is inside, and then the others, who find it done."""
    if not is_first():
        barrier()
    yield
    if is_first():
        barrier()


def exists(path: Path) -> bool:
    """Whether there is a file; all take the first's answer, so that all go the same way."""
    return bool(agreed({"exists": float(is_first() and path.exists())})["exists"])


def agreed(values: Mapping[str, float]) -> dict[str, float]:
    """The first's numbers, on every process; their names are the same on all."""
    if world() == 1:
        return dict(values)
    import torch

    join()
    sent = torch.tensor([0.0, *values.values()], dtype=torch.float64, device=_exchange_device())
    with _lost_means_the_end():
        _group().broadcast(sent, 0)
    return dict(zip(values, sent.tolist()[1:], strict=True))


def total(number: int) -> int:
    """The sum of a number over all processes."""
    if world() == 1:
        return number
    import torch

    join()
    sums = torch.tensor([number], dtype=torch.float64, device=_exchange_device())
    add_up(sums)
    return int(sums.item())


def add_up(tensor: "Tensor", *, largest: bool = False) -> None:
    """Replace a tensor by its sum over all processes, or by each element's largest: the same bits on all."""
    if world() > 1:
        join()
        operation = _group().ReduceOp.MAX if largest else _group().ReduceOp.SUM
        with _lost_means_the_end():
            _group().all_reduce(tensor, operation)


def copy_from_first(tensors: Sequence["Tensor"]) -> None:
    """Give every process the first's tensors."""
    if world() > 1:
        join()
        with _lost_means_the_end():
            for tensor in tensors:
                _group().broadcast(tensor.detach(), 0)


def _group() -> Any:
    import torch.distributed

    return torch.distributed


@lru_cache(maxsize=1)
def _store() -> Any:
    """Where the processes meet; torchrun keeps it, so that it outlives each of them.

    Subtle: also those that were started again, who must not find the addresses of the lost.
    """
    from torch.distributed.rendezvous import rendezvous

    store = next(rendezvous("env://", rank(), world(), timeout=LONGEST_WAIT))[0]
    return _group().PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _exchange_device() -> str:
    """Where numbers must lie to be sent: on the GPU where the processes were joined over NCCL only."""
    return "cuda" if _group().get_backend() == "nccl" else "cpu"


@contextmanager
def _lost_means_the_end() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:
        raise LostProcess(
            f"A process of this run was lost (rank {rank()} of {world()} noticed): "
            "start all of them again with --resume."
        ) from problem
