"""The console script, and `python -m dpsweep VERB ...`, which does the same."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: no file in it runs for the sake of its name

STOPPED = 130
"""The exit code of a stop, `ExitCode.STOPPED`: the module that defines it is one of those whose import may be stopped."""


def main() -> None:
    """Runs a command; a Ctrl-C during the imports ends in one sentence too."""
    try:
        from dpsweep.sweeper.commands.cli import main as command
        from dpsweep.sweeper.processes import process_exit_without_memory_cleanup
        from dpsweep.sweeper.processes import ignore_broken_pipe_on_stdout
    except KeyboardInterrupt:
        print("Stopped before anything began: nothing was charged.", file=sys.stderr)
        sys.exit(STOPPED)
    ignore_broken_pipe_on_stdout()
    with process_exit_without_memory_cleanup():
        command()


if __name__ == "__main__":
    main()
