"""A process whom permissions bind, also where root runs the tests."""

from __future__ import annotations

import ctypes

DROP_FROM_BOUND, DAC_OVERRIDE = 24, 1
"""`PR_CAPBSET_DROP` of prctl(2), and the capability by which root writes what permissions forbid."""

VERSION_3 = 0x20080522
"""`_LINUX_CAPABILITY_VERSION_3` of capset(2): two sets of 32 capabilities, each effective, permitted, inheritable."""


def lose_power() -> None:
    """Permissions bind this process from now on, and every program that it starts."""
    libc = ctypes.CDLL(None)
    libc.prctl(DROP_FROM_BOUND, *map(ctypes.c_ulong, (DAC_OVERRIDE, 0, 0, 0)))
    header, sets = (ctypes.c_uint32 * 2)(VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    for effective_or_permitted in (0, 1):
        sets[effective_or_permitted] &= ~(1 << DAC_OVERRIDE)
    libc.capset(header, sets)
