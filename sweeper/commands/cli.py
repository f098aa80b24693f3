"""`dpsweep VERB ...`: a thin shell over the library, with Hydra overrides after the verb.

A verb imports what it needs once it is chosen, so that help and the completion of verbs are instant.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dpsweep.accounting.errors import BadInput, ExitCode
from dpsweep.sweeper.commands.one_sentence import one_sentence
from dpsweep.sweeper.processes.garbage_collection import seldom_collected


def main() -> None:
    """The console script."""
    parser = argparse.ArgumentParser(
        prog="dpsweep",
        description="Hyperparameter sweeps over private training, priced as a whole.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n"
        + "\n".join(f"  {name:8} {text}" for name, (_, text) in VERBS.items())
        + "\n\nexit codes:\n"
        + "\n".join(f"  {code.value:3} {code.meaning}" for code in ExitCode),
    )
    parser.add_argument("verb", choices=VERBS, metavar="verb")
    if sys.argv[1:2] == ["-sc"]:
        _complete(sys.argv[1:])
        return
    known, rest = parser.parse_known_args(sys.argv[1:2])
    sys.path.append(str(Path.cwd()))  # last, so that users' classes are found as in plain Hydra programs
    with one_sentence(), seldom_collected():
        VERBS[known.verb][0](rest + sys.argv[2:])


def _complete(arguments: list[str]) -> None:
    """Tab completion (`eval "$(dpsweep -sc install=bash)"`): verbs first, then Hydra's completions."""
    program, _, line = os.environ.get("COMP_LINE", "").partition(" ")
    verb, space, overrides = line.lstrip().partition(" ")
    if "install" not in " ".join(arguments) and not space:
        print(*(name for name in VERBS if name.startswith(verb)))
        return
    if verb == "budget":
        from dpsweep.sweeper.commands import budget

        within, space, after = overrides.lstrip().partition(" ")
        if not space and "=" not in within:
            print(*(known for known in budget.VERBS if known.startswith(within)))
        overrides = after if within in budget.VERBS else overrides
    os.environ["COMP_LINE"] = f"{program} {overrides}"
    sweep(arguments)


def sweep(arguments: list[str]) -> None:
    """`dpsweep sweep OVERRIDES`."""
    from dpsweep.sweeper.commands.hydra_app import main as hydra_main

    hydra_main(arguments)


def plan(arguments: list[str]) -> None:
    """`dpsweep plan OVERRIDES`."""
    gc.set_threshold(RARELY)
    sweep([*arguments, "hydra.sweeper.verb=plan"])


def advise(arguments: list[str]) -> None:
    """`dpsweep advise OVERRIDES`."""
    sweep([*arguments, "hydra.sweeper.verb=advise"])


def resume(arguments: list[str]) -> None:
    """`dpsweep resume FOLDER [OVERRIDES]`; the overrides say where and how jobs run."""
    folder, *words = arguments or [""]
    _folders([folder] if folder else [])
    for word in words:
        if not word.startswith(ABOUT_JOBS):
            raise BadInput(
                f"Expected {word} to say where jobs run ({', '.join(ABOUT_JOBS)}): what runs is in {folder}/plan.json."
            )
    place = str(Path(folder).absolute()).replace("\\", "\\\\").replace("'", "\\'")
    sweep([*words, f"hydra.sweep.dir='{place}'", "hydra.sweeper.verb=resume"])


def budget(arguments: list[str]) -> None:
    """`dpsweep budget VERB ...`."""
    from dpsweep.sweeper.commands.budget import budget

    budget(arguments)


def verify(arguments: list[str]) -> None:
    """`dpsweep verify FOLDER...`."""
    from dpsweep.sweeper.commands.budget import verify

    verify(arguments)


def report(arguments: list[str]) -> None:
    """`dpsweep report FOLDER...`."""
    from dpsweep.accounting.ledger.ledger import Ledger
    from dpsweep.reports.pages.page_memory import current_report

    for folder in _folders(arguments):
        print(current_report(folder, Ledger(Ledger.locate())))


def release(arguments: list[str]) -> None:
    """`dpsweep release FOLDER...`."""
    from dpsweep.accounting.ledger.ledger import Ledger
    from dpsweep.reports.pages.release import write_release

    for folder in _folders(arguments):
        print(write_release(folder, Ledger(Ledger.locate())))


def export(arguments: list[str]) -> None:
    """`dpsweep export FOLDER...`."""
    from dpsweep.accounting.ledger.ledger import Ledger
    from dpsweep.reports.pages.model_export import write_export

    for folder in _folders(arguments):
        print(write_export(folder, Ledger(Ledger.locate())))


ABOUT_JOBS = (
    *("compute.", "data=", "hydra/launcher=", "hydra.launcher.", "page=", "--again", "privacy.accept_delta="),
    *("hydra.sweeper.study=", "hydra.sweeper.retry=", "hydra.sweeper.max_batch_size="),
)
"""How a word may begin that `dpsweep resume` takes beside its folder."""

RARELY = 200_000
"""New objects after which Python looks for garbage in `dpsweep plan`; by its default this takes a tenth of the time."""

VERBS = {
    "sweep": (sweep, "price, charge, train and report a grid; takes Hydra overrides; --again repeats and pays again"),
    "resume": (resume, "go on with a sweep folder by its own plan, also where defaults have changed since"),
    "plan": (plan, "print what a sweep would cost and how long it would take; changes nothing"),
    "advise": (advise, "what privacy.epsilon would buy under each way of searching, as measured; changes nothing"),
    "budget": (budget, "show accounts [dataset=NAME] [--json]; open, raise, close or charge them: budget --help"),
    "verify": (verify, "check the ledger's chain, and sweep folders against it"),
    "report": (report, "render a sweep folder's curator/report.html again"),
    "release": (release, "write a sweep folder's release/: only what the rule lets out"),
    "export": (export, "write a sweep folder's export/: the winner's weights, configuration and model card"),
}
"""Each verb's function and its line of help."""


def _folders(arguments: Sequence[str]) -> list[Path]:
    if not arguments:
        raise BadInput("Expected a sweep folder, as the last line of a sweep names it (sweeps/DATASET/PLAN).")
    for folder in map(Path, arguments):
        if not (folder / "plan.json").is_file():
            raise BadInput(f"Expected {folder} to be a sweep folder with a plan.json.")
    return [Path(folder) for folder in arguments]


if __name__ == "__main__":
    main()
