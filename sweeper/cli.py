"""`dpsweep VERB ...`: a thin shell over the library, with Hydra overrides behind the verb."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from accounting.errors import BadInput, ExitCode
from accounting.ledger import Ledger, Statement
from sweeper import app
from sweeper.compose import read_budget
from sweeper.verify import verify_folder


def main() -> None:
    """The console script."""
    verbs: dict[str, tuple[Callable[[list[str]], None], str]] = {
        "sweep": (app.main, "price, charge, train and report a grid; takes Hydra overrides"),
        "plan": (plan, "print what a sweep would cost and how long it would take; changes nothing"),
        "budget": (
            budget,
            "show accounts [dataset=NAME] [--json]; `budget raise dataset=NAME budget.epsilon=E` raises one",
        ),
        "verify": (verify, "check the ledger's chain, and sweep folders against it"),
        "report": (report, "render a sweep folder's curator/report.html again"),
        "release": (release, "write a sweep folder's release/: only what the rule lets out"),
    }
    parser = argparse.ArgumentParser(
        prog="dpsweep",
        description="Hyperparameter sweeps over private training, priced as a whole.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="verbs:\n"
        + "\n".join(f"  {verb:8} {text}" for verb, (_, text) in verbs.items())
        + "\n\nexit codes:\n"
        + "\n".join(f"  {code.value:3} {code.meaning}" for code in ExitCode),
    )
    parser.add_argument("verb", choices=verbs, metavar="verb")
    if sys.argv[1:2] == ["-sc"]:
        _complete(sys.argv[1:], tuple(verbs))
        return
    known, rest = parser.parse_known_args(sys.argv[1:2])
    with app.one_sentence():
        verbs[known.verb][0](rest + sys.argv[2:])


def _complete(arguments: list[str], verbs: Sequence[str]) -> None:
    """Tab completion (`eval "$(dpsweep -sc install=bash)"`): verbs first, then what Hydra knows."""
    program, _, line = os.environ.get("COMP_LINE", "").partition(" ")
    verb, space, overrides = line.lstrip().partition(" ")
    if "install" not in " ".join(arguments) and not space:
        print(*(known for known in verbs if known.startswith(verb)))
        return
    os.environ["COMP_LINE"] = f"{program} {overrides}"
    app.main(arguments)


def plan(arguments: list[str]) -> None:
    """`dpsweep plan OVERRIDES`."""
    app.main([*arguments, "hydra.sweeper.verb=plan"])


def budget(arguments: list[str]) -> None:
    """`dpsweep budget [raise] OVERRIDES [--json]`."""
    as_json = "--json" in arguments
    words = [argument for argument in arguments if argument != "--json"]
    ledger = Ledger(Ledger.locate())
    if words[:1] == ["raise"]:
        config = _config(words[1:])
        statements: Sequence[Statement] = [ledger.raise_budget(config.dataset.name, read_budget(config))]
    else:
        named = any(word.startswith("dataset=") for word in words)
        names = [_config(words).dataset.name] if named else ledger.accounts()
        statements = [ledger.statement(name) for name in names]
    if as_json:
        print(json.dumps([_account(statement) for statement in statements], indent=1))
        return
    for statement in statements:
        _show(statement)
    if not statements:
        print(f"No account is open in {ledger.path}; the first sweep on a data set opens one.")


def verify(arguments: list[str]) -> None:
    """`dpsweep verify [FOLDER...]`."""
    ledger = Ledger(Ledger.locate())
    print(f"{ledger.path}: {ledger.verify()} entries, the chain is whole.")
    for folder in arguments:
        print(verify_folder(Path(folder), ledger))


def report(arguments: list[str]) -> None:
    """`dpsweep report FOLDER...`."""
    from reports.page import write_report

    for folder in _folders(arguments):
        print(write_report(folder, Ledger(Ledger.locate())))


def release(arguments: list[str]) -> None:
    """`dpsweep release FOLDER...`."""
    from reports.release import write_release

    for folder in _folders(arguments):
        print(write_release(folder, Ledger(Ledger.locate())))


def _folders(arguments: Sequence[str]) -> list[Path]:
    if not arguments:
        raise BadInput("Expected a sweep folder, as the last line of a sweep names it (sweeps/DATASET/PLAN).")
    for folder in map(Path, arguments):
        if not (folder / "plan.json").is_file():
            raise BadInput(f"Expected {folder} to be a sweep folder with a plan.json.")
    return [Path(folder) for folder in arguments]


def _config(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(config_dir=str(app.CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def _account(statement: Statement) -> dict[str, object]:
    budget = statement.budget
    return {
        "account": statement.account,
        "adjacency": budget.adjacency.value,
        "unit": budget.unit,
        "budget": {"epsilon": budget.epsilon, "delta": budget.delta},
        "reserved": dict(zip(("epsilon", "delta"), statement.reserved, strict=True)),
        "left": dict(zip(("epsilon", "delta"), statement.left, strict=True)),
        "charges": [
            {"plan": entry.plan, "at": entry.at}
            | {key: entry.body[key] for key in ("reason", "epsilon", "delta")}
            | {"runs": len(entry.body["trials"])}
            for entry in statement.charges
        ],
    }


def _show(statement: Statement) -> None:
    table = Table(title=f"{statement.account}: {statement.budget}", title_justify="left")
    for column in ("plan", "what", "for", "epsilon", "delta", "when"):
        table.add_column(column, justify="right" if column in ("for", "epsilon", "delta") else "left")
    for entry in statement.charges:
        body = entry.body
        what = "the plan" if body["reason"] == "plan" else "repeated runs"
        table.add_row(
            entry.plan,
            what,
            _what_for(entry.plan, body["trials"]),
            f"{body['epsilon']:.4f}",
            f"{body['delta']:g}",
            entry.at,
        )
    table.add_section()
    for name, (epsilon, delta) in (("reserved", statement.reserved), ("left", statement.left)):
        table.add_row(name, "", "", f"{epsilon:.4f}", f"{delta:.3g}", "")
    Console(highlight=False).print(table)


def _what_for(plan: str, trials: Sequence[str]) -> str:
    """What a charge pays for: how many runs, or one search that does not tell."""
    if list(trials) == [plan]:
        return "1 search"
    return f"{len(trials)} run{'' if len(trials) == 1 else 's'}"


if __name__ == "__main__":
    main()
