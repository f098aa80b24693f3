"""Plants the faults of `faults.yaml`, one at a time, into a copy of this checkout, and says which tests find them.

python -m tests.planted.plant [NAME ...]           the tests that are known to find each fault
python -m tests.planted.plant --room sweeper       the whole suite of one room instead
python -m tests.planted.plant --sound [NAME ...]   the same tests without a fault: they must pass
python -m tests.planted.plant --table              writes the table of README.md and runs nothing

The checkout is never changed. The exit code is 1 if a fault is missed, or if a test fails without one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
README = Path(__file__).with_name("README.md")
PASSED, FAILED = 0, 1
"""The exit codes of pytest where all tests ran; any other one says that it did not get so far."""

OURS = "import dpsweep, hydra_plugins.honest_sweeper as plugin; print(dpsweep.__file__, plugin.__file__)"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A replacement of lines in one file, the promise that it breaks, and tests that fail under it."""

    name: str
    promise: int
    breaks: str
    file: str
    old: str
    new: str
    found_by: tuple[str, ...]

    @property
    def rooms(self) -> tuple[str, ...]:
        """The folders of its tests."""
        return tuple(dict.fromkeys(test.split("/")[1] for test in self.found_by))

    @contextmanager
    def planted_in(self, root: Path) -> Iterator[None]:
        """The file with the fault; at the end as it was, with the time by which its byte code is known."""
        path = root / self.file
        text, times = path.read_text(), path.stat()
        path.write_text(text.replace(self.old, self.new))
        try:
            yield
        finally:
            path.write_text(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def faults() -> tuple[Fault, ...]:
    rows = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
    return tuple(Fault(**{**row, "found_by": tuple(row["found_by"])}) for row in rows)


def copy_checkout(into: Path) -> None:
    """The files that git tracks or would track, links as links."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name, follow_symlinks=False)


def environment_of_copy(root: Path) -> dict[str, str]:
    """The environment in which `dpsweep` and its plugins are the copy's; raises if they are those of the checkout."""
    paths = os.pathsep.join((str(root), str(root / "sweeper" / "plugin")))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
    words = (sys.executable, "-c", OURS)
    told = subprocess.run(words, cwd=root, env=environment, check=True, capture_output=True, text=True).stdout
    if not all(Path(place).is_relative_to(root) for place in told.split()):
        raise RuntimeError(f"Expected the copy in {root} to be imported, got {told}")
    return environment


def run_tests(root: Path, tests: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit code of pytest, and the first test that failed, or what else there is to say."""
    words = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return done.returncode, next(iter(failed), f"pytest ended with {done.returncode}: {done.stdout[-2000:]}")


def table() -> str:
    """The faults by promise, as Markdown."""
    rows = (f"| {one.promise} | {one.name} | {one.breaks} | {', '.join(one.rooms)} |" for one in faults())
    return "\n".join(("| promise | fault | what goes wrong | found by the tests of |", "|---|---|---|---|", *rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.plant")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of faults; all without one")
    parser.add_argument("--room", help="a folder of tests/, whose whole suite runs")
    parser.add_argument("--sound", action="store_true", help="plant nothing: the tests must pass")
    parser.add_argument("--table", action="store_true", help="write the table of README.md")
    asked = parser.parse_args(words)
    if asked.table:
        README.write_text(re.sub(r"(?s)\| promise \|.*\|\n", lambda _: f"{table()}\n", README.read_text()))
        return 0
    chosen = [fault for fault in faults() if not asked.names or fault.name in asked.names]
    if len(chosen) < len(set(asked.names)):
        parser.error(f"Expected names of faults, got {', '.join(asked.names)}.")
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy_checkout(root := Path(folder).resolve())
        environment, missed = environment_of_copy(root), 0
        if asked.sound:
            code, said = run_tests(root, sorted({test for fault in chosen for test in fault.found_by}), environment)
            print(f"without a fault: {'passed' if code == PASSED else said}")
            return int(code != PASSED)
        for fault in chosen:
            for test in [f"tests/{asked.room}"] if asked.room else fault.found_by:
                with fault.planted_in(root):
                    code, said = run_tests(root, [test], environment)
                missed += code != FAILED
                result = f"found by {said}" if code == FAILED else f"MISSED by {test}" + f" ({said})" * (code != PASSED)
                print(f"{fault.promise}  {fault.name:48}  {result}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
