"""`python -m reports OUTPUT...`: renders the curator's pages of sweep folders again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accounting.errors import DpsweepError
from accounting.ledger import Ledger


def main(arguments: list[str] | None = None) -> int:
    """Prints the path of each page; the exit code is that of the first error, told in one sentence."""
    parser = argparse.ArgumentParser(prog="python -m reports", description=__doc__)
    parser.add_argument("output", nargs="+", type=Path, help="folder of a sweep, with its plan.json")
    folders: list[Path] = parser.parse_args(arguments).output
    from reports.page import write_report  # after the arguments, since seaborn takes seconds to load

    try:
        ledger = Ledger(Ledger.locate())
        for folder in folders:
            print(write_report(folder, ledger))
    except DpsweepError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
