"""Writes what docs/architecture.md says of imports: the files of the trusted core, and the picture of the rooms.

python docs/generators/rooms.py
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("accounting", "trainers", "reports", "sweeper")
BEGIN, END = "<!-- rooms: python docs/generators/rooms.py -->\n", "<!-- end of rooms -->\n"
TRUSTED, END_OF_TRUSTED = "<!-- trusted: python docs/generators/rooms.py -->\n", "<!-- end of trusted -->\n"

CORE = (
    "accounting/ledger/ledger.py",
    "accounting/ledger/permit.py",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "accounting" / "selection").glob("*.py"))),
)
"""What charges, what a claim allows, what marks steps, and the rules: with all that they import, the trusted core."""

BESIDE = (
    "accounting/accountants/rdp.py",
    "accounting/chain/postgres_server.py",
    "accounting/chain/sqlite_file.py",
    "accounting/ledger/renyi_filter.py",
    "accounting/ledger/sealed_parts.py",
    "accounting/profiles/derived_profiles.py",
    "accounting/profiles/random_allocation.py",
)
"""Theorems that some accounts alone use, and drivers of databases: they are trusted by whoever uses them."""

STEPS = "dpsweep.accounting.ledger.permit.StepLog"
ACCESS = (
    "trainers/data/doors.py",
    "trainers/engines/interface.py",
    "trainers/randomness.py",
)
"""What marks steps; who opens records, bounds and sums, and draws batches and noise."""

Arrows = Mapping[str, frozenset[str]]


def modules(package: str) -> list[Path]:
    """All modules of a package."""
    return sorted((ROOT / package).rglob("*.py"))


def room(path: Path) -> str:
    """The folder of a module, or the module itself where it lies directly in a package."""
    place = path.relative_to(ROOT)
    return (place.parent if len(place.parts) > 2 else place.with_suffix("")).as_posix()


def imports(path: Path) -> Iterator[str]:
    """What a file imports when it runs, with the names of `from module import name`; not what types alone need."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hints = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and "TYPE_CHECKING" in {getattr(node.test, "id", None), getattr(node.test, "attr", None)}
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hints:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(name: str) -> Path | None:
    """The file of ours that a dotted name is of."""
    parts = name.split(".")[1:] if name.startswith("dpsweep.") else []
    for many in range(len(parts), 0, -1):
        if (path := ROOT.joinpath(*parts[:many]).with_suffix(".py")).is_file():
            return path
    return None


def loaded(roots: Collection[str], without: Collection[str] = ()) -> set[str]:
    """The files that these files import, directly or not, and themselves; nothing by way of `without`."""
    every, waiting = set[str](), set(roots)
    while waiting:
        every.add(name := waiting.pop())
        others = {path.relative_to(ROOT).as_posix() for one in imports(ROOT / name) if (path := module_of(one))}
        waiting |= others - every - set(without)
    return every


def trusted() -> Mapping[str, set[str]]:
    """The trusted core, the theorems and drivers that it can load, and the files of trainers that make an access."""
    core, places = loaded(CORE, without=BESIDE), {ROOT / one for one in ACCESS}
    names = {path.relative_to(ROOT).as_posix(): path for path in modules("trainers")}
    users = {
        name
        for name, path in names.items()
        if name in ACCESS or any(one == STEPS or module_of(one) in places for one in imports(path))
    }
    return {
        "The core": core,
        "Theorems and drivers that it can load": loaded(CORE) - core,
        "Files of trainers that make an access": {name for name in users if "/auditing/" not in name},
    }


def listed() -> str:
    """The trusted files, between their marks: a row for each folder."""
    rows = ["| | folder | files |", "|---|---|---|"]
    for what, names in trusted().items():
        folders: dict[str, list[str]] = {}
        for name in sorted(names):
            folder, _, file = name.removesuffix(".py").rpartition("/")
            folders.setdefault(folder, []).append(file)
        for folder, files in folders.items():
            rows.append(f"| {what} | `{folder}` | {', '.join(files)} |")
            what = ""
    return TRUSTED + "\n".join(rows) + "\n" + END_OF_TRUSTED


def arrows() -> Arrows:
    """Which rooms each room imports from."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in modules(package):
            if path.name == "__init__.py":
                continue
            others = {room(other) for name in imports(path) if (other := module_of(name)) is not None}
            found.setdefault(room(path), set()).update(others - {room(path)})
    return {name: frozenset(others) for name, others in sorted(found.items())}


def drawn(every: Arrows) -> Iterator[tuple[str, str]]:
    """The arrows of the picture: between folders alone, without those that a way of other arrows stands for."""
    folders = {name: {other for other in others if other.count("/") > 0} for name, others in every.items()}
    folders = {
        name: {other for other in others if (ROOT / other).is_dir()}
        for name, others in folders.items()
        if (ROOT / name).is_dir()
    }
    reach: dict[str, set[str]] = {}

    def reached(name: str) -> set[str]:
        if name not in reach:
            reach[name] = folders[name].union(*(reached(other) for other in folders[name]))
        return reach[name]

    for name, others in folders.items():
        for other in sorted(others):
            if not any(other in reached(between) for between in others - {other}):
                yield name, other


def render() -> str:
    """The picture in Mermaid, between its marks."""
    every = arrows()
    lines = ["```mermaid", "flowchart BT"]
    for package in PACKAGES:
        lines.append(f"  subgraph {package}")
        names = [name for name in every if name.startswith(f"{package}/") and (ROOT / name).is_dir()]
        lines += [f"    {_key(name)}[{name.removeprefix(package + '/')}]" for name in names]
        lines.append("  end")
    lines += [f"  {_key(name)} --> {_key(other)}" for name, other in drawn(every)]
    return BEGIN + "\n".join([*lines, "```"]) + "\n" + END


def insert(page: str) -> str:
    """The page with the lists and the picture as they are now."""
    for begin, text, end in ((TRUSTED, listed(), END_OF_TRUSTED), (BEGIN, render(), END)):
        before, _, rest = page.partition(begin)
        page = before + text + rest.partition(end)[2]
    return page


def _key(name: str) -> str:
    return name.replace("/", "_")


if __name__ == "__main__":
    page = ROOT / "docs" / "architecture.md"
    page.write_text(insert(page.read_text(encoding="utf-8")), encoding="utf-8")
