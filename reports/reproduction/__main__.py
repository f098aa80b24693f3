"""`python -m dpsweep.reports.reproduction FIGURE`: makes a paper's figure again and says which of its claims hold.

A figure that needs training starts the ordinary command, a sweep of its experiment, with a ledger of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpsweep.accounting.errors import DpsweepError
from dpsweep.reports.reproduction.finding import Computed, Reproduction, find
from dpsweep.reports.reproduction.training import train

ROOT = Path("reproductions")


def main(arguments: list[str] | None = None) -> int:
    """Prints each claim's verdict and the page's path; 0 whatever the verdicts, else the error's exit code."""
    parser = argparse.ArgumentParser(prog="python -m dpsweep.reports.reproduction", description=__doc__)
    parser.add_argument("figure", nargs="?", default="", help="a figure, such as b_fig9; leave it out for the list")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides of its experiment")
    parser.add_argument("--scale", default="small", help="full, small (the default) or smoke, for what needs training")
    parser.add_argument("--output", type=Path, default=ROOT, help="folder for all figures (default: reproductions)")
    asked = parser.parse_intermixed_args(arguments)
    from dpsweep.reports.reproduction.document import write

    try:
        folder, made = _make(asked.figure, asked.scale, asked.overrides, asked.output)
        page = write(made, folder)
    except DpsweepError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(f"{made.title} ({made.source})")
    for finding in made.findings:
        print(f"  {finding.verdict}: {finding.claim}\n    {finding.numbers}")
    print(page)
    return 0


def _make(name: str, scale: str, overrides: list[str], root: Path) -> tuple[Path, Reproduction]:
    """The folder of a figure, and the figure."""
    figure = find(name)
    if isinstance(figure, Computed):
        return root / name, figure.make()
    folder = root / name / scale
    return folder, figure.make(train(figure.experiment, scale, overrides, folder))


if __name__ == "__main__":
    sys.exit(main())
