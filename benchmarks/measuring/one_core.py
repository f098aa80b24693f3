"""One core and one thread of torch, so that contenders compare by their work."""

from __future__ import annotations

import os
import warnings

import torch


def stay_on_one_core() -> None:
    """Keeps this process on one core with one thread, and silences what engines warn of at each step."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    warnings.filterwarnings("ignore", message="There is a performance drop")
