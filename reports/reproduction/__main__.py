"""`python -m reports.reproduction FIGURE`: makes a paper's figure again and says which of its claims hold."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accounting.errors import DpsweepError
from reports.reproduction.finding import find

ROOT = Path("reproductions")


def main(arguments: list[str] | None = None) -> int:
    """Prints each claim's verdict and the page's path; 0 whatever the verdicts, else the error's exit code."""
    parser = argparse.ArgumentParser(prog="python -m reports.reproduction", description=__doc__)
    parser.add_argument("figure", nargs="?", default="", help="a figure, such as b_fig9; leave it out for the list")
    parser.add_argument("--output", type=Path, default=ROOT, help="folder for all figures (default: reproductions)")
    asked = parser.parse_args(arguments)
    from reports.reproduction.document import write  # after the arguments: matplotlib takes its time

    try:
        made = find(asked.figure).make()
        page = write(made, asked.output / asked.figure)
    except DpsweepError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(f"{made.title} ({made.source})")
    for finding in made.findings:
        print(f"  {finding.verdict}: {finding.claim}\n    {finding.numbers}")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
