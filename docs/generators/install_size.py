"""Measures what `make install` fetches, needs on the disk and takes, and writes that into constraints.txt.

python docs/generators/install_size.py

What a sweep needs is measured in an environment of its own, which is set up here while pip's cache has all files:
on the disk by the packages' own lists of files, to fetch by deflating these files as a wheel does. `make install` says
the line before it begins. With a torch for GPUs it is more: the line names the build of torch that was measured.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
import time
import zlib
from importlib.metadata import Distribution, distributions
from pathlib import Path

FILE = Path(__file__).parents[2] / "constraints.txt"
BEGIN = "# Size: "
CHUNK = 1 << 20
LEVEL = 6
"""What zip files are written with."""


def names(pins: str) -> set[str]:
    """The normalized names of the pinned packages.

    >>> sorted(names("# note\\ntorch==2.13.0 # why\\nast_serialize==0.1"))
    ['ast-serialize', 'torch']
    """
    return {normal(name) for name in re.findall(r"^([\w.-]+)==", pins, re.MULTILINE)}


def normal(name: str) -> str:
    """A package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sizes(package: Distribution) -> tuple[int, int]:
    """The bytes of a package's files, deflated and on the disk; compiled Python files are made here, not fetched."""
    fetched = stored = 0
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if path.suffix == ".pyc" or not path.is_file():
            continue
        deflate = zlib.compressobj(LEVEL)
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                stored += len(chunk)
                fetched += len(deflate.compress(chunk))
        fetched += len(deflate.flush())
    return fetched, stored


def measured(pins: str, packages: Path, seconds: float) -> str:
    """The line with both sizes of the packages that lie in this folder, and the time that installing them took."""
    pinned = names(pins)
    found = {normal(one.name): one for one in distributions(path=[str(packages)])}
    both = [sizes(package) for name, package in found.items() if name in pinned]
    fetched, stored = (f"{sum(part) / 1e9:.1f} GB" for part in zip(*both, strict=True))
    python = ".".join(map(str, sys.version_info[:2]))
    torch = f"torch {found['torch'].version}"
    where = f"{len(both)} packages, {torch}, Python {python}, {platform.system()} {platform.machine()}"
    size = f"about {fetched} to fetch and {stored} on the disk"
    return f"{BEGIN}{size}, {seconds:.0f} s where pip's cache has it (measured: {where})"


def main() -> None:
    """Writes the line below the first one of constraints.txt."""
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder, "venv")
        for _ in range(2):  # the second time pip's cache has all files
            subprocess.run(["rm", "-rf", venv], check=True)
            began = time.perf_counter()
            subprocess.run(["make", "install", f"VENV={venv}", f"PYTHON={sys.executable}"], cwd=FILE.parent, check=True)
        seconds, pins = time.perf_counter() - began, FILE.read_text()
        line = measured(pins, next(venv.glob("lib/python*/site-packages")), seconds)
    first, *others = [line for line in pins.splitlines() if not line.startswith(BEGIN)]
    FILE.write_text("\n".join([first, line, *others]) + "\n")


if __name__ == "__main__":
    main()
