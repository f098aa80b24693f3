"""The command line that studies have: `run FOLDER [NAME ...]`, `table`, and `--toy`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def start_study(
    run: Callable[[str, Sequence[str]], object], table: Callable[[], str], toy: Callable[[], object], about: str | None
) -> None:
    """Runs the study on a folder of official files, prints its table, or tries it; prints how it is used otherwise."""
    match sys.argv[1:]:
        case ["--toy"]:
            toy()
        case ["run", folder, *only]:
            run(str(Path(folder).resolve()), only)
        case ["table"]:
            print(table())
        case _:
            sys.exit(about)
