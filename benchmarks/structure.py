"""How much there is to hold: the size of the product, what a command enters, and in how many files an option speaks.

    python benchmarks/structure.py [--toy]

An option speaks in a file if a bare line of it (no docstring, no comment, no import) matches the option's pattern, as
`grep -rlE` would find it. A command enters a file of the product if it calls a function of it: a profiler hook in a
process of its own lists them. The smallest sweep is two points of DP-SGD on digits, up to the call that charges the
ledger. The toy run counts the text alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from measuring.aims import Aim
from measuring.bare_code import PACKAGES, ROOT, Module, product_modules
from measuring.script import start

OPTIONS: Mapping[str, tuple[str, float]] = {
    "hidden draw": (
        r"hides_losers|draws_in_secret|[Hh]idden_?(?:[Ss]earch|[Tt]r)|[Ss]ecret_?(?:[Dd]raw|[Tt]r)|[Ss]tored_?[Dd]raw"
        r"|[Dd]rawn_?[Tt]r|\bDraw\b|tries of a draw",
        15,
    ),
    "final run": (r"\b[Ff]inals?\b(?! epsilon)|_finals?\b|\bfinals?_|\bFINAL\b|FinalRun|[Ff]inal run", 15),
    "public data": (r"\bpublic\b|[Pp]ublic\(|is_public|_public\b", 15),
    "proposals": (r"[Pp]ropos(?!ition)", 10),
    "shared subsample": (r"subsample|shared_|_shared\b|\.shared\b|\bshared=|Shared", 12),
    "spare attempts": (r"\bspares?\b|_spares?\b|\bspare_", 6),
    "rehearsal": (r"rehears", 5),
    "sealed parts": (r"[Ss]eal|SEAL", 15),
    "frozen features": (r"FeatureCache|features_folder|Extracted", 10),
    "seed": (r'\["seed"\]|"seed"|\.seed\b|\bseed=|_seed\b', 10),
}
"""A pattern for each option, and in how many files it should speak at most.

A pattern matches the option's own names and words, not other things of the same name: the hidden size of a layer, the
`finally` of a statement, batches that are drawn, a transparent picture.
"""

RULE_QUESTIONS = r"isinstance\([^)]*rule"
KIND_BRANCHES = r"\.(draws_in_secret|hides_losers|final_runs|proposed|public|has_public_data|is_data_declared_public)\b"
SWEEP = ("sweep", "dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1", "steps=5")
LATER = ("verify", "report", "release", "export", "resume")
OTHERS = (("budget",), ("help", "trainer.lr"), ("plan", *SWEEP[1:]))

HOOK = """
import json, sys, threading
seen, root, place, until = set(), sys.argv[1], sys.argv[2], sys.argv[3]
packages = sys.argv[4].split(",")
del sys.argv[1:5]
def hook(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_name[0] != "<":  # no module's, class's or comprehension's body
        name = code.co_filename
        if name.startswith(root) and name[len(root) + 1:].replace("dpsweep/", "", 1).split("/")[0] in packages:
            seen.add((name, code.co_qualname))
            if code.co_qualname == until:
                stop()
def stop():
    sys.setprofile(None)
    threading.setprofile(None)
    with open(place, "w") as stream:
        json.dump(sorted(seen), stream)
import os
left = os._exit
def leave(code):
    stop() if not os.path.exists(place) else None
    left(code)
os._exit = leave
sys.setprofile(hook)
threading.setprofile(hook)
from dpsweep.__main__ import main
try:
    main()
finally:
    if not os.path.exists(place):
        stop()
"""
"""Runs the command after its own four words, and writes which functions of the product were called before `until`."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Whether commands are run, too."""

    commands: str = "run"


def main(size: Size) -> list[Aim]:
    """Prints the table, and returns its aims."""
    modules = product_modules()
    aims = [*_product_aims(modules), *_option_aims(modules)]
    return [*aims, *_command_aims()] if size.commands == "run" else aims


def _product_aims(modules: tuple[Module, ...]) -> list[Aim]:
    lines = sum(len(module.lines) for module in modules)
    functions, classes = sum(module.functions for module in modules), sum(module.classes for module in modules)
    statements = sum(module.statements for module in modules)
    print(f"the product: {lines} bare lines of {statements} statements, {functions} functions, {classes} classes")
    return [
        Aim(name="bare lines", measured=lines, at_most=27_000),
        Aim(name="files", measured=len(modules), at_most=365),
        Aim(name="functions", measured=functions, at_most=3_400),
    ]


def _option_aims(modules: tuple[Module, ...]) -> list[Aim]:
    def speaking(pattern: str, room: str = "") -> int:
        return sum(
            module.path.startswith(room) and any(re.search(pattern, line) for line in module.lines)
            for module in modules
        )

    def lines(pattern: str) -> int:
        return sum(
            bool(re.search(pattern, line))
            for module in modules
            if not module.path.startswith("accounting/selection/")
            for line in module.lines
        )

    counted = [
        Aim(name=f"files that speak of {name}", measured=speaking(pattern), at_most=at_most)
        for name, (pattern, at_most) in OPTIONS.items()
    ]
    return [
        *counted,
        Aim(name="lines that ask which rule it is", measured=lines(RULE_QUESTIONS), at_most=0),
        Aim(name="lines that branch on the kind of search", measured=lines(KIND_BRANCHES), at_most=30),
    ]


def _command_aims() -> list[Aim]:
    with tempfile.TemporaryDirectory() as room:
        home = Path(room)
        smallest = _entered(home / "smallest", SWEEP, until="Ledger.charge")
        everyday = _entered(home, SWEEP)
        (folder,) = (str(plan.parent) for plan in home.glob("sweeps/*/*/plan.json"))
        for words in (*((verb, folder) for verb in LATER), *OTHERS):
            everyday |= _entered(home, words)
    return [
        Aim(name="files that the smallest sweep enters", measured=_files(smallest), at_most=130),
        Aim(name="functions that the smallest sweep enters", measured=len(smallest), at_most=750),
        Aim(name="files that nine everyday commands enter", measured=_files(everyday), at_most=190),
    ]


def _files(entered: set[tuple[str, str]]) -> int:
    return len({file for file, _ in entered})


def _entered(home: Path, words: tuple[str, ...], until: str = "") -> set[tuple[str, str]]:
    """The functions of the product that a command calls in this folder, as (file, name)."""
    home.mkdir(exist_ok=True)
    place = home / "entered.json"
    own = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CONFIG", "DATA", "CACHE")}
    ledger = {"DPSWEEP_LEDGER": str(home / "ledger.sqlite"), "DPSWEEP_KEY": str(home / "key")}
    line = [sys.executable, "-c", HOOK, str(ROOT), str(place), until, ",".join(PACKAGES), *words]
    subprocess.run(line, cwd=home, env=os.environ | own | ledger, check=True, capture_output=True)
    found = {(file, name) for file, name in json.loads(place.read_text())}
    place.unlink()
    return found


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(commands="none"), about=__doc__)
