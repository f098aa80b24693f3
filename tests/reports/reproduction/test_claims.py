"""Verdicts on made-up tables: each claim holds on one that shows it and on no other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pandas as pd
import pytest

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.figures.ridge import CLIP, LR, exponent
from dpsweep.reports.reproduction import claims
from dpsweep.reports.reproduction.claims import MOMENTUM, REGULARIZER, STEPS

LRS, CLIPS = (0.01, 0.1, 1.0, 10.0, 100.0), (0.1, 1.0, 10.0)
Score = Callable[[float, float], float]


def rows(method: str, key: str, score: Score, lrs: Sequence[float] = LRS) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "method": method,
                LR: lr,
                key: value,
                "noise_multiplier": 2.0,
                "state": State.FINISHED,
                "accuracy": score(lr, value),
            }
            for lr, value in itertools.product(lrs, CLIPS)
        ]
    )


def peak(where: Score) -> Score:
    """Best, 0.9, where the product is 1, and worse by 0.2 a decade."""
    return lambda lr, value: max(0.0, 0.9 - 0.2 * abs(math.log10(where(lr, value))))


ALONG_RIDGE, ALONG_LR = peak(lambda lr, value: lr * value), peak(lambda lr, value: lr)


def test_flat_in_the_regularizer() -> None:
    flat, steep = rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)
    assert claims.flat_in_regularizer(pd.concat([flat, steep])).holds
    assert "over r 0.0 points, over c 40.0 points" in claims.flat_in_regularizer(pd.concat([flat, steep])).numbers
    assert not claims.flat_in_regularizer(pd.concat([rows("dpnsgd", REGULARIZER, ALONG_RIDGE), steep])).holds
    assert not claims.flat_in_regularizer(pd.concat([flat, rows("dpsgd", CLIP, ALONG_LR)])).holds, (
        "as flat as the other"
    )


def test_a_grid_is_easier_where_more_of_it_is_good() -> None:
    wide = rows("dpnadam", REGULARIZER, lambda lr, r: 0.9 - 0.04 * (lr > 0.1))
    narrow = rows("dpadam", CLIP, ALONG_RIDGE)
    finding = claims.easier(pd.concat([wide, narrow]), "dpnadam", "dpadam")
    assert finding.holds
    assert "100%" in finding.numbers
    assert "20%" in finding.numbers
    assert not claims.easier(pd.concat([wide, wide.assign(method="dpadam")]), "dpnadam", "dpadam").holds
    swapped = [narrow.assign(method="dpnadam"), wide.assign(method="dpadam")]
    assert not claims.easier(pd.concat(swapped), "dpnadam", "dpadam").holds


def test_one_noise_that_speaks_against_it_suffices() -> None:
    good = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)])
    bad = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_RIDGE), rows("dpsgd", CLIP, ALONG_LR)])
    both = pd.concat([good, bad.assign(noise_multiplier=3.6)])
    assert claims.flat_in_regularizer(good).holds
    assert claims.ridge(good).holds
    assert not claims.flat_in_regularizer(both).holds
    assert not claims.ridge(both).holds


def test_what_diverged_scores_nothing() -> None:
    table = pd.concat([rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)], ignore_index=True)
    table.loc[(table["method"] == "dpnsgd") & (table[REGULARIZER] == 10.0), "state"] = State.DIVERGED
    assert not claims.flat_in_regularizer(table).holds


@pytest.mark.parametrize(("power", "holds"), [(1.0, True), (0.0, False), (-1.0, False), (2.0, False)])
def test_the_ridge_is_a_matter_of_the_exponent(power: float, holds: bool) -> None:
    table = rows("dpsgd", CLIP, peak(lambda lr, clip: lr * clip**power), [10 ** (k / 2) for k in range(-6, 7)])
    slope, columns = exponent(table)
    assert columns == 3
    assert slope == pytest.approx(-power)
    assert claims.ridge(table).holds is holds
    assert claims.diagonal(table).holds is holds


def test_a_best_learning_rate_at_the_grids_edge_tells_nothing() -> None:
    table = rows("dpsgd", CLIP, ALONG_RIDGE, LRS[1:4])
    assert exponent(table)[1] == 1
    assert not claims.ridge(table).holds
    assert not claims.diagonal(table).holds


def test_adam_has_no_diagonal() -> None:
    assert claims.no_diagonal(rows("dpadam", CLIP, ALONG_LR)).holds
    assert not claims.no_diagonal(rows("dpadam", CLIP, ALONG_RIDGE)).holds
    assert not claims.no_diagonal(rows("dpadam", CLIP, ALONG_LR, LRS[:1])).holds, (
        "nothing is known of one learning rate"
    )


def test_close_at_their_best() -> None:
    one, other = rows("dpnsgd", REGULARIZER, ALONG_LR), rows("dpsgd", CLIP, ALONG_RIDGE)
    assert claims.close(pd.concat([one, other]), ("dpnsgd", "dpsgd"), "close").holds
    worse = other.assign(accuracy=other["accuracy"] - 0.05)
    assert not claims.close(pd.concat([one, worse]), ("dpnsgd", "dpsgd"), "close").holds


def course(ends: dict[float, tuple[float, float]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {MOMENTUM: value, STEPS: steps, "state": State.FINISHED, "accuracy": score}
            for value, pair in ends.items()
            for steps, score in zip((50, 500), pair, strict=True)
        ]
    )


def test_momentum() -> None:
    paper = course({0.0: (0.3, 0.8), 0.6: (0.4, 0.9), 0.9: (0.6, 0.85)})
    assert claims.momentum(paper).holds
    assert claims.quick_start(paper).holds
    turned = course({0.0: (0.3, 0.8), 0.6: (0.6, 0.85), 0.9: (0.4, 0.9)})
    assert not claims.momentum(turned).holds
    assert not claims.quick_start(turned).holds
    hardly = course({0.0: (0.3, 0.8), 0.6: (0.595, 0.855), 0.9: (0.6, 0.85)})
    assert not claims.momentum(hardly).holds, "half a point is no more than noise"
    assert not claims.quick_start(hardly).holds
    assert not claims.momentum(course({0.0: (0.3, 0.95), 0.6: (0.4, 0.9), 0.9: (0.6, 0.85)})).holds


def test_adams_defaults() -> None:
    default = {LR: 0.001, "trainer.beta1": 0.9}
    table = pd.DataFrame(
        [
            {LR: lr, "trainer.beta1": beta, "state": State.FINISHED, "accuracy": 0.9 if lr == 0.001 else 0.5}
            for lr, beta in itertools.product((0.001, 0.1), (0.8, 0.9))
        ]
    )
    assert claims.defaults_do(table, default).holds
    assert not claims.defaults_do(table.assign(accuracy=[0.9, 0.9, 0.99, 0.5]), default).holds
    assert not claims.defaults_do(table.assign(accuracy=[0.7, 0.9, 0.5, 0.5]), default).holds
    assert not claims.defaults_do(table[table["trainer.beta1"] == 0.8], default).holds


def candidates(**methods: Sequence[float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"method": name, STEPS: 9, "state": State.FINISHED, "accuracy": score, LR: place, CLIP: 1.0}
            for name, found in methods.items()
            for place, score in enumerate(found)
        ]
    )


def test_few_candidates_against_as_many_of_the_others() -> None:
    many = [0.9, *[0.5] * 9]
    assert claims.few_candidates_do(candidates(dpsgd=many, dpadam=[0.85, 0.8]), ["dpsgd"], "dpadam").holds
    mean = claims.mean_of_best(many, 2)
    assert not claims.few_candidates_do(candidates(dpsgd=many, dpadam=[mean + 0.005, 0.5]), ["dpsgd"], "dpadam").holds
    assert not claims.few_candidates_do(candidates(dpsgd=many, dpadam=[0.55, 0.5]), ["dpsgd"], "dpadam").holds


def test_the_mean_of_the_best_is_that_over_all_draws() -> None:
    values = [0.3, 0.9, 0.5, 0.5, 0.1]
    for draws in range(1, 6):
        ways = [max(chosen) for chosen in itertools.combinations(values, draws)]
        assert claims.mean_of_best(values, draws) == pytest.approx(sum(ways) / len(ways))


def test_alongside() -> None:
    assert claims.alongside(candidates(a=[0.9, 0.8, 0.7], b=[0.88, 0.81, 0.3]), "a", "b").holds
    assert not claims.alongside(candidates(a=[0.9, 0.8, 0.7], b=[0.9, 0.6, 0.5]), "a", "b").holds
    assert not claims.alongside(candidates(a=[0.9, 0.8, 0.7], b=[0.8, 0.8, 0.7]), "a", "b").holds


def test_what_never_wins_can_be_pruned() -> None:
    ridge = [rows("dpsgd", CLIP, ALONG_RIDGE).assign(**{STEPS: steps}) for steps in (100, 200)]
    assert sum(claims.wins(pd.concat(ridge)).values()) == 2
    assert claims.prunable(pd.concat(ridge)).holds
    each = [
        rows("dpsgd", CLIP, lambda lr, clip, best=best: float(lr == best)).assign(**{STEPS: place})
        for place, best in enumerate(LRS)
    ]
    assert not claims.prunable(pd.concat(each)).holds
