"""Gradient sums over several processes of one machine: each sums its share of every batch, and the sums are added.

Rank 0 is the process that trains. It alone draws batches, adds noise and updates the weights; the other ranks receive
the weights and the units of their shares, and return sums without noise. So a batch is drawn once, and noise is added
once, whatever the number of processes.

Ranks speak over the loopback interface (torch.distributed, gloo). What they return is private: it never leaves the
machine. A rank ends with rank 0, however that ends; a rank that dies ends the training with an error, and the charge
stays.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing
from torch import Tensor

from dpsweep.accounting.validation import positive_int
from dpsweep.trainers.methods.transforms import GradientTransform
from dpsweep.trainers.training.allocator import keep_freed_memory
from dpsweep.trainers.training.batch_and_noise import Batch
from dpsweep.trainers.training.gradient_sums import EngineSums, Sum
from dpsweep.trainers.user_modules import FINDER, UserModules

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_END_SECONDS = 10.0
_IGNORED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name))
"""Signals that ask rank 0 to stop; it then ends the others itself."""


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The sum that all ranks compute next: of these models and transforms, at weights of this shape."""

    rows: tuple[int, ...]
    transforms: tuple[GradientTransform, ...]
    shrink: float
    shape: tuple[int, ...]
    dtype: torch.dtype
    shares: tuple[Batch, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelSums:
    """The sums of an engine over all ranks of the process group; made by `start_sums_across_processes`.

    *Guarantee*: the sums of `own` over the whole batch, up to rounding: every unit of a batch is in one share, and the
    shares' sums are added in float64. No rank draws a number.
    """

    own: EngineSums

    def over(self, rows: Sequence[int], transforms: Sequence[GradientTransform]) -> Sum:
        """The sums of all shares, in float64."""
        mine = self.own.over(rows, transforms)

        def sum_gradients_of_batch_over_ranks(weights: Tensor, batch: Batch, shrink: float = 1.0) -> Tensor:
            parts = tuple(split_batch_among_ranks(batch, torch.distributed.get_world_size()))
            request = _Request(
                rows=tuple(rows),
                transforms=tuple(transforms),
                shrink=shrink,
                shape=tuple(weights.shape),
                dtype=weights.dtype,
                shares=parts,
            )
            _broadcast_request(request)
            torch.distributed.broadcast(weights.detach().cpu().contiguous(), src=0)
            sums = mine(weights, parts[0], shrink).cpu()
            torch.distributed.reduce(sums, dst=0)
            return sums.to(weights.device)

        return sum_gradients_of_batch_over_ranks


def split_batch_among_ranks(batch: Batch, ranks: int) -> Iterator[Batch]:
    """Disjoint parts of a batch, one for each rank: of each run every `ranks`-th unit of a random order.

    An added unit changes the position of at most one other, as in `Batch.ordered`. The declared size of a part depends
    on declared numbers alone.
    """
    ends = [len(batch.units)] if batch.common else np.cumsum(batch.sizes).tolist()
    runs = [
        batch.units_of_slice_in_random_order(slice(first, last))
        for first, last in zip([0, *ends[:-1]], ends, strict=True)
    ]
    for rank in range(ranks):
        parts = [units[rank::ranks] for units in runs]
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        yield replace(
            batch,
            units=np.concatenate(parts),
            sizes=np.repeat(sizes, len(batch.sizes)) if batch.common else sizes,
            block=-(-batch.block // ranks),
            order=None,
        )


@contextmanager
def start_sums_across_processes(
    sums: EngineSums, devices: Sequence[str], *, threads: int = 1
) -> Iterator[ParallelSums]:
    """Starts a process for each device after the first, and yields the sums over all of them.

    `devices[0]` is the device of `sums`; `threads` are the threads of each further process. Raises ValueError for
    augmented copies, whose random numbers would have to be drawn in several processes.
    """
    positive_int("threads", threads)
    if sums.augmentation is not None:
        raise ValueError("Expected compute.processes=1 with an augmentation: one process draws its random numbers.")
    ranks = len(devices)
    with tempfile.TemporaryDirectory() as folder, _gloo_on_loopback_interface():
        meeting = Path(folder, "ranks")
        context = torch.multiprocessing.get_context("spawn")
        others = [
            context.Process(
                target=_serve_rank, args=(FINDER, rank, ranks, meeting, _sums_factory_for_rank(sums, device), threads)
            )
            for rank, device in enumerate(devices[1:], start=1)
        ]
        try:
            for process in others:
                process.start()
            _join_process_group(0, ranks, meeting)
            yield ParallelSums(own=sums)
            _broadcast_request(None)
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            for process in others:
                _join_or_kill_rank_process(process)


@contextmanager
def _gloo_on_loopback_interface() -> Iterator[None]:
    """Keeps gloo's sockets on the loopback interface, for this process and those that it starts."""
    name = "GLOO_SOCKET_IFNAME"
    before = os.environ.get(name)
    os.environ[name] = LOOPBACK
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _sums_factory_for_rank(sums: EngineSums, device: str) -> Callable[[], EngineSums]:
    """Makes the sums of another rank, with an engine of its own; an engine's caches and random streams stay here."""
    engine: Any = sums.engine
    kind: Callable[..., Any] = type(engine)
    own = {name.name: getattr(sums, name.name) for name in fields(sums) if name.name != "draws"}
    settings = {name.name: getattr(engine, name.name) for name in fields(engine) if name.init}
    return partial(_build_sums_on_device, own | {"engine": partial(kind, **settings), "device": device})


def _build_sums_on_device(own: Mapping[str, Any]) -> EngineSums:
    device = own["device"]
    for model in own["models"]:
        model.to(device)
    return EngineSums(**{**own, "engine": own["engine"](), "records": own["records"].to(device)})


def _serve_rank(
    _: UserModules, rank: int, ranks: int, meeting: Path, make: Callable[[], EngineSums], threads: int
) -> None:
    """A rank other than 0: computes its shares until it is told to end, or until rank 0 is gone.

    The finder is unpickled first, and then finds the classes of the models.
    """
    for one in _IGNORED:
        signal.signal(one, signal.SIG_IGN)
    threading.Thread(target=_exit_process_once_parent_ends, daemon=True).start()
    torch.set_num_threads(threads)
    keep_freed_memory()
    own = make()
    _join_process_group(rank, ranks, meeting)
    while (request := _receive_request()) is not None:
        weights = torch.empty(request.shape, dtype=request.dtype)
        torch.distributed.broadcast(weights, src=0)
        total = own.over(request.rows, request.transforms)
        share = total(weights.to(own.device), request.shares[rank], request.shrink)
        torch.distributed.reduce(share.cpu(), dst=0)
    torch.distributed.destroy_process_group()


def _join_process_group(rank: int, ranks: int, meeting: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=ranks)


def _broadcast_request(request: _Request | None) -> None:
    torch.distributed.broadcast_object_list([request], src=0)


def _receive_request() -> _Request | None:
    received: list[Any] = [None]
    torch.distributed.broadcast_object_list(received, src=0)
    request: _Request | None = received[0]
    return request


def _exit_process_once_parent_ends() -> None:
    """Ends this process when rank 0 has ended, at once, whatever it computes."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _join_or_kill_rank_process(process: Any) -> None:
    """Waits for a rank that was told to end, and kills one that does not."""
    if process.pid is None:
        return
    process.join(_END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
