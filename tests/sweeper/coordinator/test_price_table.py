"""The plan's table prints the accountants' bounds on each population of records."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence

from dpsweep.accounting.notation import accountants_upper_bounds_text, epsilon_text_rounded_up
from dpsweep.sweeper.planning.plan_builder import PricedPlan

Program = Callable[..., subprocess.CompletedProcess[str]]
Compose = Callable[[Sequence[str]], PricedPlan]

TWO = ("dataset=digits", "trainer=dpsgd", "trainer.lr=1,2", "trainer.clip_norm=1")


def printed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of the table's row on accountants."""
    assert done.returncode == 0, done.stderr
    rows = re.search(r"│accountants *│(.*?)│true cost", done.stdout, re.DOTALL)
    assert rows is not None, done.stdout
    return [line.strip() for line in re.split(r"│\n│ *│", rows[1].rstrip().rstrip("│"))]


def test_the_price_of_proposed_points_is_said_to_be_of_their_runs(program: Program) -> None:
    done = program("plan", *TWO, "search=random", "search.trials=3", module="dpsweep.sweeper.commands.cli")
    assert "for the whole search of 3 runs\n" in done.stdout, done.stderr


def test_two_accountants_that_agree_on_the_scores_alone_are_not_said_to_agree(
    program: Program, compose_priced: Compose
) -> None:
    """The larger bounds of both are those on the scores: PLD is further below RDP on the training."""
    words = (*TWO, "accountant=rdp")
    quote = compose_priced(words).quote
    training, scored = quote.bounds_by_part["training"], quote.bounds_by_part["validation"]
    assert quote.bounds == scored
    assert training["RDP"] - training["PLD"] > scored["RDP"] - scored["PLD"]
    assert printed(program("plan", *words, module="dpsweep.sweeper.commands.cli")) == [
        f"training records: {accountants_upper_bounds_text(training, training['RDP'])}",
        f"scored records: {accountants_upper_bounds_text(scored, scored['RDP'])}",
    ]


def test_the_parts_of_a_final_run_have_lines_of_their_own(program: Program) -> None:
    lines = printed(program("plan", *TWO, "tuning=disjoint", module="dpsweep.sweeper.commands.cli"))
    assert [line.partition(":")[0] for line in lines] == [
        f"{part} records" for part in ("training", "scored", "final training", "final scored")
    ]


def test_public_scores_have_no_line_and_an_accountant_without_a_bound_is_named(
    program: Program, compose_priced: Compose
) -> None:
    every_row = ("dataset.left_out=null", "dataset.records=32561", "dataset.test_records=16281")
    words = ("dataset=adult", *every_row, *TWO[1:], "score=public", "privacy.adjacency=replace_one")
    (bound,) = compose_priced(words).quote.bounds_by_part["training"].items()
    assert printed(program("plan", *words, module="dpsweep.sweeper.commands.cli")) == [
        f"training records: {epsilon_text_rounded_up(bound[1])} ({bound[0]}, used); RDP gives no bound"
    ]
