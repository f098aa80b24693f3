"""Standard output whose reader may go, as in `dpsweep sweep | head -1`: the rest is dropped, and the command goes on.

A sweep must not stop because a pager was closed. Other errors of writing, such as a full disk, stay errors.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Dropping(io.FileIO):
    """A file descriptor that leads to the null device once its reader has gone."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            with Path(os.devnull).open("wb") as null:
                os.dup2(null.fileno(), self.fileno())
            return super().write(data)


def drop_unread_output() -> None:
    """Lets this process write to standard output without an error when nobody reads it any more."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper) or not isinstance(out.buffer, (io.BufferedWriter, io.FileIO)):
        return  # replaced by a program that runs us, or none at all
    out.flush()
    raw = _Dropping(out.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        raw if out.write_through else io.BufferedWriter(raw),  # as Python does it
        encoding=out.encoding,
        errors=out.errors,
        line_buffering=out.line_buffering,
        write_through=out.write_through,
    )
