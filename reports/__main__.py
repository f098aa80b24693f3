"""`dpsweep report OUTPUT...`: renders the curator's pages of sweep folders again."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: no file in it runs for the sake of its name

import argparse
from pathlib import Path

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.printing import print_error
from dpsweep.accounting.rehearsal import ledger_of_sweep_folder


def main(arguments: list[str] | None = None) -> int:
    """Prints the path of each page; the exit code is that of the first error, told in one sentence."""
    parser = argparse.ArgumentParser(prog="dpsweep report", description=__doc__)
    parser.add_argument("output", nargs="+", type=Path, help="folder of a sweep, with its plan.json")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="also a page with all of them side by side")
    options = parser.parse_args(arguments)
    from dpsweep.reports.pages.page_memory import print_page_path_and_failures, redraw_report_if_outdated

    try:
        for folder in options.output:
            print_page_path_and_failures(redraw_report_if_outdated(folder, ledger_of_sweep_folder(folder)))
        if options.beside is not None:
            from dpsweep.reports.pages.comparison import write_comparison_page

            print_page_path_and_failures(
                write_comparison_page(options.output, Ledger(Ledger.user_ledger_place()), options.beside)
            )
    except DpsweepError as error:
        print_error(error)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
