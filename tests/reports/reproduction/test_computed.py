"""Figures that need no training: what holds on the accountants' numbers no longer holds on others."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from dpsweep.reports.reproduction.__main__ import main
from dpsweep.reports.reproduction.figures import bellet_bounds, yang_price
from dpsweep.reports.reproduction.figures import mohapatra_prices as prices
from dpsweep.reports.reproduction.finding import Computed, Trained, figure_names, find_figure
from dpsweep.reports.reproduction.honest_tuning import (
    epsilons_of_figure_1_stopping,
    rows_of_figure_1_blow_up,
    rows_of_figure_9,
    rows_of_table_3,
)
from dpsweep.reports.reproduction.one_run import (
    PRINTED,
    epsilon_rows_of_fixed_batches,
    row_of_lecture_theorem,
    rows_comparing_accountants_by_noise,
)
from dpsweep.reports.statistics.verdict import Verdict

ROOT = Path(__file__).parents[3]


def test_the_blow_up_of_one_run() -> None:
    rows = rows_of_figure_1_blow_up(prices.RECORDS)
    assert prices.finding_on_stopping_cost_over_one_run(rows).holds
    assert "10000 records: printed 4.8, ours 4.75" in prices.finding_on_stopping_cost_over_one_run(rows).numbers
    assert not prices.finding_on_stopping_cost_over_one_run(
        [replace(row, random_stopping=1.1 * row.random_stopping) for row in rows]
    ).holds
    falling = replace(rows[1], random_stopping=0.5 * rows[1].random_stopping)
    assert not prices.finding_on_stopping_cost_over_one_run([rows[0], falling, *rows[2:]]).holds


def test_more_tries_cost_barely_more() -> None:
    epsilons = epsilons_of_figure_1_stopping(prices.SIZES, prices.GAMMAS)
    assert prices.finding_that_more_tries_cost_little(epsilons).holds
    dearer = {size: (*own[:-1], own[-1] * 1.1) for size, own in epsilons.items()}
    assert not prices.finding_that_more_tries_cost_little(dearer).holds


def test_what_composition_affords() -> None:
    rows = rows_of_figure_1_blow_up(prices.RECORDS)
    assert prices.finding_that_composition_affords_many(rows).holds
    assert not prices.finding_that_composition_affords_many(rows[:-1]).holds
    assert not prices.finding_that_composition_affords_many([replace(rows[0], candidates=9), *rows[1:]]).holds
    assert not prices.finding_that_composition_affords_many([replace(rows[0], candidates=1), *rows[1:]]).holds


def test_where_composition_and_random_stopping_cross() -> None:
    rows = {records: rows_of_figure_9(records) for records in prices.CROSSINGS}
    assert prices.finding_that_crossings_match_printed(rows).holds
    assert prices.finding_that_stopping_price_is_constant(rows).holds
    cheaper = tuple(replace(row, random_stopping=0.97 * row.random_stopping) for row in rows[5000])
    assert not prices.finding_that_crossings_match_printed(rows | {5000: cheaper}).holds
    growing = tuple(replace(row, random_stopping=row.composition) for row in rows[5000])
    assert not prices.finding_that_stopping_price_is_constant(rows | {5000: growing}).holds


def test_the_final_epsilons() -> None:
    rows = rows_of_table_3()
    assert prices.finding_that_costs_match_printed_table(rows).holds
    assert prices.finding_that_adam_is_cheapest(rows).holds
    assert not prices.finding_that_costs_match_printed_table(
        [replace(rows[0], epsilon=rows[0].epsilon + 0.03), *rows[1:]]
    ).holds
    assert not prices.finding_that_adam_is_cheapest([replace(row, epsilon=5.0) for row in rows]).holds


def test_the_lectures_bounds() -> None:
    row, rows = row_of_lecture_theorem(), rows_comparing_accountants_by_noise()
    assert bellet_bounds.finding_that_theorem_noise_suffices(row).holds
    assert not bellet_bounds.finding_that_theorem_noise_suffices(replace(row, bound=1.1)).holds
    assert bellet_bounds.finding_that_newer_bounds_are_tighter(row).holds
    assert not bellet_bounds.finding_that_newer_bounds_are_tighter(replace(row, neighbours=0.03)).holds
    assert not bellet_bounds.finding_that_newer_bounds_are_tighter(replace(row, forced=0.01)).holds
    assert bellet_bounds.finding_that_moments_and_pld_cost_less(rows).holds
    assert not bellet_bounds.finding_that_moments_and_pld_cost_less([replace(rows[0], classical=1.0), *rows[1:]]).holds


def test_what_noise_costs_by_a_papers_own_definitions() -> None:
    forced = dict(zip(PRINTED, epsilon_rows_of_fixed_batches()[0].forced, strict=True))
    printed = yang_price.finding_on_printed_epsilons(forced)
    assert printed.verdict is Verdict.REFUTED
    assert "sigma 1.2: printed 8, at least 33.8" in printed.numbers
    assert yang_price.finding_on_printed_epsilons(dict.fromkeys(PRINTED, 0.5)).holds
    formula = yang_price.finding_on_closed_formula(dict.fromkeys(PRINTED, 30.88), forced)
    assert formula.verdict_text == "refuted at sigma 1.2"
    assert yang_price.finding_on_closed_formula(dict.fromkeys(PRINTED, 33.9), forced).holds


def test_a_figure_is_made_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["b_fig9", "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == str(tmp_path / "b_fig9" / "index.html")
    folder = tmp_path / "b_fig9"
    assert {path.name for path in folder.iterdir()} == {"index.html", "figure.png", "figure.svg", "findings.json"}
    page, found = (folder / "index.html").read_text(), json.loads((folder / "findings.json").read_text())
    assert [finding["verdict"] for finding in found["findings"]] == ["holds", "holds"]
    for finding in found["findings"]:
        assert finding["verdict"] in page
        assert finding["numbers"].split(";")[0] in page
    assert "http" not in page.replace("http-equiv", "")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_verdict_that_fails_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(prices.CROSSINGS, 5000, 15)
    assert main(["b_fig9", "--output", str(tmp_path)]) == 0
    assert "refuted: MA composes" in capsys.readouterr().out


def test_without_a_figure_all_names_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"The figures: {', '.join(figure_names())}.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["b_fig99", "../b_fig9"])
def test_an_unknown_figure_is_one_sentence(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(figure in said for figure in figure_names())
    assert not list(tmp_path.iterdir())


def test_every_figure_stands_in_one_file() -> None:
    files = [path.stem for path in (ROOT / "reports/reproduction/figures").glob("[a-z]*.py")]
    of_file = {name: import_module(f"dpsweep.reports.reproduction.figures.{name}").FIGURES for name in files}
    assert sorted(name for figures in of_file.values() for name in figures) == list(figure_names())
    assert all(isinstance(find_figure(name), Computed | Trained) for name in figure_names())


def test_accounts_alone_import_no_torch_and_no_sweeper() -> None:
    check = (
        "from dpsweep.reports.reproduction.finding import find_figure, figure_names\n"
        "for name in figure_names(): find_figure(name)\n"
        "import sys; print(*[name for name in ('torch', 'hydra', 'sweeper', 'trainers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []
