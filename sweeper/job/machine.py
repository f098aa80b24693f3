"""Where jobs run: what a configuration asks for, and the machine that this comes to in a process."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.records.plan import is_integer_at_least

if TYPE_CHECKING:
    from dpsweep.sweeper.trial.session import Machine


@dataclass(frozen=True, kw_only=True)
class Compute:
    """The devices, threads and memory that a command asks for; no part of any identity.

    `threads` and `chunk` are None for what suits, and so is `together`, the most points that one job trains. Jobs lease
    `devices`, each for so many jobs `per_device`; None for all GPUs that are visible, where the launcher's jobs can
    (`sweeper/job/devices.py`).
    """

    device: str
    threads: int | None
    chunk: int | None
    together: int | None
    devices: tuple[str, ...] | None = None
    per_device: int = 1

    def __post_init__(self) -> None:
        if re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is None:
            raise BadInput(f"Expected compute.device={self.device} to be auto, cpu or cuda.")
        if not is_integer_at_least(self.per_device, 1):
            raise BadInput(f"Expected compute.per_device={self.per_device!r} to be an integer >= 1.")
        for name in ("threads", "chunk", "together"):
            value = getattr(self, name)
            if value is not None and not is_integer_at_least(value, 1):
                raise BadInput(f"Expected compute.{name}={value!r} to be null or an integer >= 1.")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Compute:
        """What the group `compute` of a configuration asks for."""
        if not isinstance(config, Mapping):
            raise BadInput(f"Expected compute={config} to be a group of keys, as in compute.device=cpu.")
        names = ("threads", "chunk", "together")
        per_device, devices = config.get("per_device", 1), config.get("devices")
        if devices is not None:
            listed = [devices] if isinstance(devices, (int, str)) else devices
            devices = tuple(str(one) for one in listed)
        asked = {name: config[name] for name in names}
        return cls(device=str(config["device"]), devices=devices, per_device=per_device, **asked)

    def machine_of_worker_process(self, data: Path | None, workers: int = 1) -> Machine:
        """The machine of a process that shares its cores with so many workers; `auto` takes CUDA where there is one."""
        from dpsweep.sweeper.trial.session import Machine

        cores = usable_core_count() // max(1, workers)
        return Machine(
            device=resolve_device_name(self.device),
            threads=threads_within_omp_limit(cores) if self.threads is None else self.threads,
            chunk=self.chunk,
            data=data,
        )


def usable_core_count() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_within_omp_limit(threads: int) -> int:
    """A number of threads, at least 1 and at most `OMP_NUM_THREADS` if this variable is a number, as in torch."""
    most = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(threads, int(most)) if most.isdecimal() else threads)


def data_folder_from_typed_name(name: object) -> Path | None:
    """The user's folder with the official files, by the name that was typed; None where none was."""
    if name is not None and not isinstance(name, str):
        raise BadInput(f"Expected data={name} to be the name of a folder, a number in quotes: data=\"'{name}'\".")
    return Path(name).expanduser() if name else None


def resolve_device_name(name: str) -> str:
    """`auto` takes CUDA where there is one."""
    import torch

    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
