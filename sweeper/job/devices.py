"""GPUs for the worker processes of one machine: each process leases one, and sees no other.

A lease is a file lock in a folder of the user's, so it holds between sweeps too, and a killed process frees it.
Invariants:

* A process takes its lease before it imports what may look for GPUs, and keeps it for its life: a process that has used
  CUDA cannot change its device, and keeps memory on it. So no two processes compute on a GPU, unless they share it by
  `compute.per_device`.
* A pool has no more processes than leases (`limit_pool_to_devices`), so that only another sweep makes one wait.
* The process that starts a pool uses no GPU: its children could not, after a fork, and its memory there would be lost
  to them.

NVIDIA's management library says which GPUs there are. It starts no CUDA, which would spoil a later fork.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dpsweep.accounting.durable_files import make_folder_and_missing_parents
from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.job.machine import Compute

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""CUDA's variable for the GPUs that a process sees, by number or name; it is read when a process first uses CUDA."""

LOOK_SECONDS = 0.1

_LIBRARIES = {"linux": "libnvidia-ml.so.1", "win32": "nvml.dll"}
_NAME_BYTES = 96

_leased: list[FileLock] = []
"""The locks of this process's lease, which the system releases when the process ends."""


def names_of_visible_devices() -> tuple[str, ...]:
    """The GPUs that a process started here would see, by `CUDA_VISIBLE_DEVICES` where it is set; starts no CUDA.

    A number, as in `nvidia-smi`, stands for the name of its GPU, where NVIDIA's library tells it.
    """
    named = os.environ.get(VISIBLE)
    if named is None:
        return _names_of_all_devices()
    words = [word.strip() for word in named.split(",")]
    end = next((place for place, word in enumerate(words) if word in ("", "-1")), len(words))  # as CUDA reads it
    return tuple(map(_name_of_device, words[:end]))


def compute_with_devices(compute: Compute, *, is_pool: bool) -> Compute:
    """The same with the names of the GPUs that a pool of processes here leases; none where there is no such pool.

    Raises `BadInput` for devices that this process does not see.
    """
    asked = compute.devices
    if asked is None:
        uses_gpus = is_pool and (compute.device == "cuda" or (compute.device == "auto" and is_torch_built_for_cuda()))
        return replace(compute, devices=names_of_visible_devices() if uses_gpus else ())
    words = f"compute.devices=[{','.join(asked)}]"
    if asked and not is_pool:
        raise BadInput(
            f"Expected {words} with hydra/launcher=joblib or fork only: a queue or a cluster grants a job its GPUs, "
            f"and a job without a launcher takes the first one of {VISIBLE}."
        )
    if asked and compute.device == "auto" and not is_torch_built_for_cuda():
        raise BadInput(f"Expected {words} with a torch for CUDA: the one that is installed here uses no GPU.")
    names, visible = tuple(map(_name_of_device, asked)), names_of_visible_devices()
    if not set(names) <= set(visible):
        raise BadInput(f"Expected {words} to be among the GPUs that are visible here, got {_numbers(visible)}.")
    if len(set(names)) < len(names):
        raise BadInput(f"Expected {words} to name each GPU once; compute.per_device lets jobs share one.")
    return replace(compute, devices=names)


def limit_pool_to_devices(n_jobs: int, cores: int, compute: Compute) -> int:
    """joblib's `n_jobs` for a pool on these devices: a process for each lease, or fewer if a number was given."""
    leases = len(compute.devices or ()) * compute.per_device
    if not leases or not n_jobs:
        return n_jobs
    return min(leases, n_jobs if n_jobs > 0 else leases if n_jobs == -1 else max(1, cores + 1 + n_jobs))


def lease_devices_for_process(compute: Compute, folder: Path, should_stop: Callable[[], bool]) -> bool:
    """Leases the GPUs of one job for the life of this process; waits while all are leased, False if it has to stop.

    A process that has a lease keeps it.
    """
    if not compute.devices or _leased:
        return True
    make_folder_and_missing_parents(folder)
    while not should_stop():
        for seat in range(compute.per_device):
            for name in compute.devices:
                if _try_to_lease(name, folder, seat):
                    return True
        time.sleep(LOOK_SECONDS)
    return False


def devices_of_first_job(compute: Compute) -> Mapping[str, str]:
    """The environment variable of a process that tries a job's steps without a lease; none where none are leased."""
    return {VISIBLE: compute.devices[0]} if compute.devices else {}


@cache
def is_torch_built_for_cuda() -> bool:
    """Whether the installed torch can use CUDA, on a machine that has it; torch is not imported."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return False
    return any(Path(torch.origin).parent.glob("lib/*torch_cuda*"))


def _try_to_lease(name: str, folder: Path, seat: int) -> bool:
    """Leases this GPU if it is not leased."""
    lock = FileLock(folder / f"{socket.gethostname()}-{name.replace('/', '-')}.{seat}")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    _leased.append(lock)
    os.environ[VISIBLE] = name
    return True


def _name_of_device(word: str) -> str:
    names = _names_of_all_devices() if word.isdecimal() else ()
    return names[int(word)] if word.isdecimal() and int(word) < len(names) else word


def _numbers(names: tuple[str, ...]) -> str:
    """The GPUs with these names by their numbers, where they have some."""
    known = _names_of_all_devices()
    return ",".join(str(known.index(name)) if name in known else name for name in names) or "none"


@cache
def _names_of_all_devices() -> tuple[str, ...]:
    """The names of the GPUs that this process may use, in the order of their numbers; none without NVIDIA's library."""
    import ctypes

    try:
        library: Any = ctypes.CDLL(_LIBRARIES[sys.platform])
    except (OSError, KeyError):
        return ()
    if library.nvmlInit_v2():
        return ()
    count, names = ctypes.c_uint(), []
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for place in range(count.value):
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(_NAME_BYTES)
        if library.nvmlDeviceGetHandleByIndex_v2(place, ctypes.byref(handle)):
            continue  # another's
        if not library.nvmlDeviceGetUUID(handle, name, _NAME_BYTES):
            names.append(name.value.decode())
    library.nvmlShutdown()
    return tuple(names)
