"""Memory that is freed stays with the process, so that the next step takes no new pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, torch
from dpsweep.trainers.training.allocator import give_back_freed_memory, keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        tensors = [torch.ones(2**20) for _ in range(20)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

M_MMAP_THRESHOLD = -3
assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**17)  # where glibc starts; it raises it by itself, as it happens
before = faults(3)
assert keep_freed_memory()
faults(3)
kept = faults(3)
assert give_back_freed_memory()
print(before, kept, faults(3))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is told")
def test_a_step_that_is_repeated_takes_no_new_pages_until_memory_is_given_back() -> None:
    words = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True).split()
    before, kept, given_back = map(int, words)  # how many faults depends on the system's page size; ratios do not
    assert kept < min(before, given_back) / 10
