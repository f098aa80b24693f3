"""Several sweeps on one page: one scale, one table, and what their accounts paid for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dpsweep.reports.content.facts import read_bill, sum_in_exact_decimals
from dpsweep.reports.content.panels import Mark
from dpsweep.reports.content.sweep_table import read_sweep
from dpsweep.reports.pages import comparison as beside

AXES = {
    "dpsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.clip_norm": (0.5, 1)},
    "dpnsgd": {"trainer.lr": (0.1, 0.2, 0.4), "trainer.regularizer": (0.1, 1)},
}
SweepOf = Callable[..., Any]


def test_the_page_holds_every_sweep_and_what_they_paid_together(sweep_of: SweepOf, tmp_path: Any) -> None:
    made = sweep_of(AXES)
    path = beside.write_comparison_page([made.folder, made.folder], made.ledger, tmp_path / "beside")
    form = json.loads((path.parent / "beside.json").read_text())
    bill = read_bill(read_sweep(made.folder, made.ledger))
    assert [row["epsilon"] for row in form["sweeps"]] == [bill.epsilon] * 2
    assert form["together"] == [
        f"digits paid epsilon {beside.epsilon_text_rounded_up(bill.epsilon)} at delta 1e-5 for this sweep."
    ], "the same sweep named twice was paid once"
    html = path.read_text()
    assert html.count("<figure") == 4, "a map for each method of each sweep"
    assert html.count('class="key"') == 1, "one legend"
    assert "https:" not in html
    assert {file.suffix for file in path.parent.iterdir()} == {".html", ".json", ".png", ".svg"}


def test_sweeps_of_one_account_add_up_and_others_pay_for_themselves(sweep_of: SweepOf) -> None:
    made = sweep_of(AXES)
    sweep = read_sweep(made.folder, made.ledger)
    bill = read_bill(sweep)
    again = replace(sweep, plan_id="another")
    other = replace(sweep, plan=replace(sweep.plan, account="elsewhere"))
    said = [*beside._joint_price_sentences([sweep, again, other], [bill] * 3)]
    twice = sum_in_exact_decimals([bill.epsilon, bill.epsilon])
    assert said[0].startswith(
        f"digits paid epsilon {beside.epsilon_text_rounded_up(twice)} at delta 2e-5 for these 2 sweeps"
    )
    assert said[1].startswith(
        f"elsewhere paid epsilon {beside.epsilon_text_rounded_up(bill.epsilon)} at delta 1e-5 for this sweep"
    )


def test_cells_are_off_the_common_scale_and_not_their_own(sweep_of: SweepOf) -> None:
    made = sweep_of(
        {"dpsgd": {"trainer.lr": tuple(map(float, range(1, 7)))}}, accuracy=lambda place: 0.9 - place / 1000
    )
    good = read_sweep(made.folder, made.ledger)
    bad = replace(good, table=good.table.assign(accuracy=[0.9, 0.899, 0.898, 0.897, 0.896, 0.1]))
    bill = read_bill(good)
    alone, together = (beside._draw_maps_of_sweeps(sweeps, [bill] * len(sweeps))[0] for sweeps in ([bad], [bad, good]))
    marked = [[cell.mark for panel in one.panels for cell in panel.cells.values()] for one in (alone, together)]
    assert [marks.count(Mark.BELOW) for marks in marked] == [1, 1]
    middling = replace(good, table=good.table.assign(accuracy=[0.5, 0.4, 0.3, 0.2, 0.15, 0.1]))
    (common, *_) = beside._draw_maps_of_sweeps([bad, middling], [bill] * 2)
    assert all(cell.mark is not Mark.BELOW for panel in common.panels for cell in panel.cells.values())


@pytest.mark.long
def test_the_command_writes_it_beside_the_pages(
    sweep_of: SweepOf, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpsweep.reports.__main__ import main

    made = sweep_of(AXES)
    monkeypatch.setenv("DPSWEEP_LEDGER", str(made.ledger.path))
    assert main([str(made.folder), "--beside", str(tmp_path / "both")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "both" / "beside.html")
