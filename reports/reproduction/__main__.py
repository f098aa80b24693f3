"""`python -m dpsweep.reports.reproduction FIGURE`: reproduces a paper's figure and says which of its claims hold.

A figure that needs training runs an ordinary sweep of its experiment with a separate ledger. `all` makes every figure.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: no file in it runs for the sake of its name

import argparse
import math
from pathlib import Path

from dpsweep.accounting.durable_files import make_folder_and_missing_parents, write_json
from dpsweep.accounting.errors import DpsweepError, ExitCode
from dpsweep.accounting.files import READABLE
from dpsweep.accounting.printing import print_error, print_line
from dpsweep.reports.pages.templates import fill_template, write_file_in_one_rename, write_picture_files
from dpsweep.reports.reproduction.every_figure import ALL, make_missing_figures_within_hours
from dpsweep.reports.reproduction.finding import Computed, Reproduction, figure_names, find_figure
from dpsweep.reports.reproduction.registry import reproduction_of_results
from dpsweep.reports.reproduction.results import RESULTS, read_results, write_results
from dpsweep.reports.reproduction.training import run_sweep_and_read_results

ROOT, FILE = Path("reproductions"), "index.html"


def main(arguments: list[str] | None = None) -> int:
    """Prints each claim's verdict and the page's path; returns 0 for any verdicts, or the error's exit code."""
    parser = argparse.ArgumentParser(prog="python -m dpsweep.reports.reproduction", description=__doc__)
    parser.add_argument(
        "figure", nargs="?", default="", help="a figure, for example b_fig9, or all; leave it out for the list"
    )
    parser.add_argument("overrides", nargs="*", help="Hydra overrides of its experiment")
    parser.add_argument(
        "--scale", default="small", help="full, small (the default) or smoke, for figures with training"
    )
    parser.add_argument("--output", type=Path, default=ROOT, help="folder for all figures (default: reproductions)")
    parser.add_argument(
        "--hours", type=float, default=math.inf, help="for all: figures that need longer are left for later"
    )
    options = parser.parse_intermixed_args(arguments)

    def make_figure_and_print(name: str) -> None:
        _write_page_and_print_verdicts(
            *_folder_and_reproduction_of_figure(name, options.scale, options.overrides, options.output)
        )

    try:
        if not options.figure:
            print_line(f"The figures: {', '.join(figure_names())}.")
            return 0
        if options.figure == ALL:
            return make_missing_figures_within_hours(
                make_figure_and_print, options.scale, options.overrides, options.output, options.hours
            )
        make_figure_and_print(options.figure)
    except DpsweepError as error:
        print_error(error)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print_error("Stopped. The same command continues where this one stopped.")
        return int(ExitCode.STOPPED)
    return 0


def _write_page_and_print_verdicts(folder: Path, reproduction: Reproduction) -> None:
    """Writes the page and prints the verdicts and the page's path."""
    page = write_page(reproduction, folder)
    print_line(f"{reproduction.title} ({reproduction.source})")
    for finding in reproduction.findings:
        print_line(f"  {finding.verdict_text}: {finding.claim}")
        for text in filter(None, (finding.numbers, finding.remark, finding.flip)):
            print_line(f"    {text}")
    print_line(page)


def _folder_and_reproduction_of_figure(
    name: str, scale: str, overrides: list[str], root: Path
) -> tuple[Path, Reproduction]:
    """The folder of a figure, and its reproduction; one from a search is made of the results that its folder keeps."""
    figure = find_figure(name)
    if isinstance(figure, Computed):
        return root / name, figure.make()
    folder = root / name / scale
    write_results(run_sweep_and_read_results(name, scale, overrides, folder), folder / RESULTS)
    return folder, reproduction_of_results(figure, read_results(folder / RESULTS))


def write_page(reproduction: Reproduction, folder: Path) -> Path:
    """Writes the page, its picture and findings, replaces older ones, and returns the page's path."""
    make_folder_and_missing_parents(folder, READABLE)
    write_picture_files(reproduction.drawing, folder)
    findings = [finding.to_json() for finding in reproduction.findings]
    content = {"title": reproduction.title, "source": reproduction.source, "findings": findings}
    write_json(folder / "findings.json", content)
    write_file_in_one_rename(folder / FILE, render_page_as_html(reproduction).encode())
    return folder / FILE


def render_page_as_html(reproduction: Reproduction) -> str:
    """The page as one HTML document that loads files from its own folder only."""
    return fill_template("reproduction.html.j2", page=reproduction)


if __name__ == "__main__":
    sys.exit(main())
