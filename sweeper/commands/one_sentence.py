"""Errors as one sentence on stderr and an exit code. Imports neither Hydra nor accounting, so that help is instant."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from dpsweep.accounting.errors import DpsweepError, ExitCode
from dpsweep.accounting.missing_rights import missing_rights_text
from dpsweep.accounting.printing import BadInputInLines, print_error, print_error_lines, print_errors
from dpsweep.sweeper.coordinator.signals import command_to_repeat

MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.BUG: "a defect of dpsweep or a broken contract",
    ExitCode.BAD_INPUT: "bad input, nothing was charged",
    ExitCode.BUDGET_REFUSED: "the privacy budget refuses this, nothing was charged",
    ExitCode.DONE_WITH_FAILURES: "done, but some trials failed or were killed; they stay charged",
    ExitCode.LEDGER_DAMAGED: "the ledger is damaged or cannot be written, nothing more was charged",
    ExitCode.DISK_FAILED: "a file cannot be written or read; what was charged stays charged",
    ExitCode.CLAIM_FAILS: "a claim of a release does not hold",
    ExitCode.NOT_RECOMPUTED: "nothing of a release fails; its other pages were not compared",
    ExitCode.UNDER_CHARGED: "a charge is below what this version prices it at; nothing was charged now",
    ExitCode.STOPPED: "stopped by the user; what was charged stays charged",
}
"""The meaning of each code as text, since `make` turns every code into 2."""


class one_sentence:  # noqa: N801 - reads as a phrase in `with one_sentence():`
    """Turns an exception that leaves the block into one sentence on stderr and its exit code.

    Output that cannot be written at the end of the block is such an exception too.
    `HYDRA_FULL_ERROR=1` shows the traceback too.
    """

    def __enter__(self) -> None:
        self._full = bool(os.environ.get("HYDRA_FULL_ERROR"))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with _ignore_ctrl_c_while_printing(error):
            self._print_error_and_exit(error)

    def _print_error_and_exit(self, error: BaseException | None) -> None:
        """Writes what is left to say; raises `SystemExit` with the error's exit code."""
        if error is None:
            error = _error_of_flushing_stdout()
        if error is None:
            return
        if isinstance(error, SystemExit):
            if isinstance(error.code, ExitCode):
                _print_exit_code(error.code)
            if not isinstance(error.code, DpsweepError):
                return
            error = error.code
        sentence, code = _error_sentence_and_exit_code(error)
        if self._full or (code is ExitCode.BUG and not isinstance(error, DpsweepError)):
            print_error_lines("".join(traceback.format_exception(error)))
        (print_error_lines if isinstance(error, BadInputInLines) else print_error)(sentence)
        print_errors(missing_rights_text(error))
        _print_exit_code(code)
        sys.exit(code)


@contextmanager
def _ignore_ctrl_c_while_printing(error: BaseException | None) -> Iterator[None]:
    """Within it Ctrl-C does nothing, so that the last lines are written; after it Ctrl-C ends the process at once.

    All files are written by then: what is left is the shutdown of Python, and the exit code stays that of the command.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = error.code if isinstance(error, SystemExit) else None
    try:
        yield
    except SystemExit as leaving:
        code = leaving.code
        raise
    finally:
        number = code if isinstance(code, int) else int(code is not None)
        signal.signal(signal.SIGINT, lambda *_: os._exit(number))


def _error_of_flushing_stdout() -> OSError | None:
    """What standard output complains of when it is flushed; a process may have none."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as full:
        return full
    return None


def _print_exit_code(code: ExitCode) -> None:
    print_error(f"(exit code {code.value}: {MEANINGS[code]})")


def _error_sentence_and_exit_code(error: BaseException) -> tuple[str, ExitCode]:
    """The sentence and the exit code of an exception."""
    if isinstance(error, DpsweepError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        if "dpsweep.accounting.ledger.ledger" not in sys.modules:  # no charge without it
            return "Stopped before anything began: nothing was charged.", ExitCode.STOPPED
        return (
            "Stopped at once. Nothing more is charged, and what was charged stays so; the same command goes on: "
            f"{command_to_repeat()}",
            ExitCode.STOPPED,
        )
    if "hydra" in sys.modules and (sentence := _hydra_error_sentence(error)):
        return sentence, ExitCode.BAD_INPUT
    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return (
            f"A file cannot be written or read: {place}{error.strerror or error}. Once that is mended, the same "
            f"command goes on: {command_to_repeat()}",
            ExitCode.DISK_FAILED,
        )
    return f"{type(error).__name__}: {error}", ExitCode.BUG


def _hydra_error_sentence(error: BaseException) -> str | None:
    """The sentence of an exception of Hydra's; None for any other."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from dpsweep.sweeper.planning.unknown_keys import wrong_override_sentence

    if not isinstance(error, (HydraException, OmegaConfBaseException)):
        return None
    words = sys.argv[1:]
    sentence = wrong_override_sentence(error, words)
    return sentence or _hydra_message_in_one_line(str(error)) or _hydra_message_in_one_line(str(error.__cause__))


def _hydra_message_in_one_line(message: str) -> str:
    """Hydra's message in one line, without the positions and hints that follow it."""
    head, _, _ = message.partition("Config search path:")
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    sentences = [
        line for line in lines if not line.startswith(("full_key:", "object_type=", "See https", "Set the env"))
    ]
    return " ".join(" ".join(sentences).split())
