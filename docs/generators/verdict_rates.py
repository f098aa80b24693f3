"""Writes docs/reproduction/rates_*.csv and their summary: how often each criterion errs on made-up tables of scores.

python docs/generators/verdict_rates.py [TABLE...]

Each criterion is computed on tables with an experiment's grid in which every score is drawn from N(.8, .01), and on
tables in which the effect that it looks for was planted, with the same noise. The criterion that two best scores are
close is also computed where they differ by exactly its margin, with noise that differs between points; the slope of
best lr ~ c^e on tables of several kinds whose slope is known.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.random import Generator, Philox

from dpsweep.reports.content.sweep_table import State
from dpsweep.reports.reproduction import claims, learning_curves, rate_claims
from dpsweep.reports.reproduction.finding import ClaimEvidence, Margin
from dpsweep.reports.reproduction.results import rows_of_first_recorded_step
from dpsweep.reports.statistics.point_scores import (
    CLIP,
    LR,
    REGULARIZER,
    point_scores,
    weighted_mean_of_ordered_scores,
    weights_of_best,
)
from dpsweep.reports.statistics.score_grid import Slope, score_grid, slope_of_best_rate
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict

PAGE = Path(__file__).parents[1] / "reproduction.md"
TABLES_BESIDE = PAGE.parent / "reproduction"
BEGIN, END = "<!-- rates: python docs/generators/verdict_rates.py -->\n", "<!-- end of rates -->\n"
NOISE_STD, LEVEL = 0.01, 0.8
Z95 = 1.96
PLANTED_STD = 0.005
"""Noise of the scores in the tables with an effect: that of about 10,000 scored records."""

TABLES, PLANTED = 300, 100

Score = Callable[..., float]
Claim = Callable[[pd.DataFrame], ClaimEvidence]
LRS = tuple(np.geomspace(0.01, 100, 9))
CLIPS = tuple(np.geomspace(0.1, 10, 5))
MANY_CLIPS = tuple(np.geomspace(0.1, 10, 12))
BEST_CONSTANT = 0.4
"""The score of the best constant predictor of the made-up tables, far below that of a good run."""

NOISE: Mapping[str, Sequence[float]] = {"noise_multiplier": (2.0,)}


def _slope(rows: pd.DataFrame, method: str, margin: Margin) -> ClaimEvidence:
    known = rows.assign(**{claims.BEST_CONSTANT: BEST_CONSTANT})
    return rate_claims.evidence_on_rate_by_clip_norm(known, method, margin)


INVERSE, FREE = (
    partial(_slope, method=method, margin=margin)
    for method, margin in (("dpsgd", rate_claims.INVERSE), ("dpadam", rate_claims.FREE))
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A method's grid, and its true score as a function of the settings by name."""

    method: str
    axes: Mapping[str, Sequence[float]]
    score: Score = lambda **_: LEVEL


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """A criterion of a claim, the runs of each point, and two tables' true scores: nothing, and the planted effect."""

    name: str
    claim: Claim
    nothing: tuple[Part, ...]
    effect: tuple[Part, ...]
    repeats: int = 3


def table(parts: Sequence[Part], repeats: int) -> pd.DataFrame:
    """A sweep's table of these parts, with their true scores."""
    return pd.concat([_rows(part, repeats) for part in parts], ignore_index=True)


def noisy(rows: pd.DataFrame, repeats: int, std: float | pd.Series, random: Generator) -> pd.DataFrame:
    """The table with noise on each score; where points have one run, the score's interval says how much."""
    scores = rows["accuracy"] + std * random.standard_normal(len(rows))
    half = Z95 * std if repeats == 1 else math.nan
    return rows.assign(accuracy=scores, accuracy_low=scores - half, accuracy_high=scores + half)


def on_noise(one: Criterion, tables: int = TABLES) -> Counter[Verdict]:
    """How often the criterion gives each verdict on pure noise."""
    return _verdicts(one, one.nothing, NOISE_STD, tables)


def on_effect(one: Criterion, tables: int = PLANTED) -> Counter[Verdict]:
    """How often the criterion gives each verdict on the planted effect."""
    return _verdicts(one, one.effect, PLANTED_STD, tables)


def _verdicts(one: Criterion, parts: Sequence[Part], std: float, tables: int) -> Counter[Verdict]:
    random = Generator(Philox(crc32(f"{one.name} {one.repeats} {std}".encode())))
    rows = table(parts, one.repeats)
    return Counter(one.claim(noisy(rows, one.repeats, std, random)).verdict for _ in range(tables))


def criteria() -> Iterator[Criterion]:
    """All criteria on scores, with three runs of each point and with one whose error is known."""
    for repeats in (3, 1):
        for one in (*_of_grids(), *_of_candidates(), *_of_lengths()):
            yield Criterion(**{**vars(one), "repeats": repeats})
    yield from _of_curves()


def _raised(**at: float) -> float:
    """Best at the three largest learning rates."""
    return LEVEL + 0.1 * bool(at[LR] >= LRS[6])


def _one_rate(**at: float) -> float:
    """Best at the middle learning rate."""
    return LEVEL - 0.1 * bool(at[LR] != LRS[4])


def _setting(rows: pd.DataFrame) -> pd.Series:
    """The clip norm or the regularizer of each row."""
    return rows[REGULARIZER].fillna(rows[CLIP])


SPREADS: dict[str, tuple[Score, Callable[[pd.DataFrame], float | pd.Series]]] = {
    "alike": (lambda **_: LEVEL, lambda _: NOISE_STD),
    "a tenth near the best scores": (_raised, lambda rows: 0.02 - 0.018 * (rows[LR] >= LRS[6])),
    "25 times as much at every other learning rate, of equal scores": (
        lambda **_: LEVEL,
        lambda rows: 0.002 + 0.048 * rows[LR].isin(LRS[1::2]),
    ),
}
"""True scores of a grid, and the standard deviation of its runs."""


BOUNDARIES: dict[str, tuple[Score, Callable[[pd.DataFrame], float | pd.Series]]] = {
    "alike": (_raised, lambda _: NOISE_STD),
    "25 times as much at every other learning rate": (
        _raised,
        lambda rows: 0.002 + 0.048 * rows[LR].isin(LRS[1::2]),
    ),
    "5 times as much in one method": (_raised, lambda rows: 0.004 + 0.016 * (rows["method"] == "dpsgd")),
    "11 times as much at the best learning rate": (_one_rate, lambda rows: 0.002 + 0.02 * (rows[LR] == LRS[4])),
    "16 times as much at one of the best points": (
        _one_rate,
        lambda rows: 0.002 + 0.03 * ((rows[LR] == LRS[4]) & (_setting(rows) == CLIPS[2])),
    ),
    "16 times as much at two of the best points": (
        _one_rate,
        lambda rows: 0.002 + 0.03 * ((rows[LR] == LRS[4]) & _setting(rows).isin(CLIPS[1::2])),
    ),
}
"""True scores of a grid, and the standard deviation of the runs of two methods whose best scores are compared."""


def along_rate(width: float = 0.1) -> Score:
    """Best at lr 1, whatever the other setting."""
    return lambda **at: 0.85 - width * math.log10(at[LR]) ** 2


def along_product(**at: float) -> float:
    """Best where lr x clip norm is 1."""
    return 0.85 - 0.1 * math.log10(at[LR] * at[CLIP]) ** 2


def _grid(
    method: str, score: Score | None = None, rates: Sequence[float] = LRS, clips: Sequence[float] = CLIPS
) -> Part:
    key = REGULARIZER if "nsgd" in method else CLIP
    axes = {LR: rates, key: clips, "noise_multiplier": (2.0,)}
    return Part(method=method, axes=axes) if score is None else Part(method=method, axes=axes, score=score)


def _of_grids() -> Iterator[Criterion]:
    nothing = (_grid("dpnsgd"), _grid("dpsgd"))
    wide = (_grid("dpnsgd", along_rate(0.02)), _grid("dpsgd", along_product))
    both = (_grid("dpnsgd", along_rate()), _grid("dpsgd", along_product))
    yield Criterion(
        name="stable in r, while c matters",
        claim=claims.evidence_that_regularizer_matters_little,
        nothing=nothing,
        effect=both,
    )
    yield Criterion(
        name="easier to tune",
        claim=partial(claims.evidence_that_normalized_tunes_easier, normalized="dpnsgd", clipped="dpsgd"),
        nothing=nothing,
        effect=wide,
    )
    yield Criterion(
        name="the same best score",
        claim=partial(claims.evidence_that_best_scores_are_close, methods=("dpnsgd", "dpsgd")),
        nothing=nothing,
        effect=both,
    )
    many = partial(_grid, clips=MANY_CLIPS)
    for name, claim, method, score in (
        ("best lr ~ 1 / clip norm", INVERSE, "dpsgd", along_product),
        ("best lr does not depend on clip norm", FREE, "dpadam", along_rate()),
    ):
        yield Criterion(name=name, claim=claim, nothing=(many(method),), effect=(many(method, score),))


def _of_candidates() -> Iterator[Criterion]:
    few = {LR: (0.001,), CLIP: CLIPS[:4], "noise_multiplier": (2.0,)}
    many = {LR: LRS, CLIP: CLIPS[:4], "noise_multiplier": (2.0,)}
    nothing = (Part(method="dpadam", axes=few), Part(method="dpsgd", axes=many))
    yield Criterion(
        name="few candidates against many",
        claim=partial(claims.evidence_that_few_candidates_beat_others, tuned=["dpsgd"], few="dpadam"),
        nothing=nothing,
        effect=(Part(method="dpadam", axes=few), _grid("dpsgd", lambda **at: 0.7, clips=CLIPS[:4])),
    )
    adams = {**NOISE, LR: (0.0001, 0.001, 0.01), "trainer.beta1": (0.8, 0.9), "trainer.beta2": (0.99, 0.999)}
    yield Criterion(
        name="the defaults are near the best",
        claim=partial(
            claims.evidence_that_adam_defaults_suffice,
            default={LR: 0.001, "trainer.beta1": 0.9, "trainer.beta2": 0.999},
        ),
        nothing=(Part(method="dpadam", axes=adams),),
        effect=(Part(method="dpadam", axes=adams, score=lambda **at: 0.8 - 0.2 * (at[LR] != 0.001)),),
    )


def _of_lengths() -> Iterator[Criterion]:
    lengths = {**NOISE, "steps": (500, 1000, 2000)}
    grows = {LR: (0.001,), CLIP: CLIPS[:4], **lengths}
    methods = ("dpadam", "dpadamwosm")
    yield Criterion(
        name="runs alongside",
        claim=partial(claims.evidence_that_second_method_is_no_worse, one="dpadam", other="dpadamwosm"),
        nothing=tuple(Part(method=method, axes=grows) for method in methods),
        effect=tuple(
            Part(method=method, axes=grows, score=lambda **at: at["steps"] / 4000 + 0.3) for method in methods
        ),
    )
    rates = {LR: LRS[:6], CLIP: CLIPS[:4], **lengths}
    yield Criterion(
        name="half of the learning rates can be pruned",
        claim=rate_claims.evidence_that_many_rates_are_prunable,
        nothing=(Part(method="dpsgd", axes=rates),),
        effect=(Part(method="dpsgd", axes=rates, score=lambda **at: 0.8 - 0.2 * (at[LR] < 0.2)),),
    )
    momentum = {**NOISE, claims.MOMENTUM: (0.0, 0.3, 0.6, 0.7, 0.9), "steps": (100, 2000)}
    yield Criterion(
        name="momentum 0.6 or 0.7 is the best in the end",
        claim=lambda rows: claims.evidence_that_moderate_momentum_is_best(rows[rows["steps"] == rows["steps"].max()]),
        nothing=(Part(method="dpmomentum", axes=momentum),),
        effect=(Part(method="dpmomentum", axes=momentum, score=_moderate),),
    )
    yield Criterion(
        name="momentum 0.9 is the best at first",
        claim=lambda rows: claims.evidence_that_large_momentum_starts_fast(rows_of_first_recorded_step(rows)),
        nothing=(Part(method="dpmomentum", axes=momentum),),
        effect=(Part(method="dpmomentum", axes=momentum, score=_moderate),),
    )
    noises = {"noise_multiplier": (0.74, 0.85, 1.15)}
    kinds = (claims.PLAIN, claims.AVERAGED, claims.FALLING, claims.BOTH)
    equal, unequal = (
        tuple(Part(method=kind, axes=noises, score=score(kind)) for kind in kinds) for score in (_level, _amended)
    )
    yield Criterion(
        name="better at every noise",
        claim=partial(claims.evidence_that_method_beats_dpsgd, method=claims.BOTH),
        nothing=equal,
        effect=unequal,
    )
    yield Criterion(
        name="a larger gain for few steps",
        claim=claims.evidence_that_few_steps_gain_most,
        nothing=equal,
        effect=unequal,
    )


def _moderate(**at: float) -> float:
    early, value = at["steps"] == 100, at[claims.MOMENTUM]
    return 0.6 + 0.2 * (value == 0.9) if early else 0.9 - 0.06 * (value not in claims.MODERATE)


def _level(kind: str) -> Score:
    return lambda **_: LEVEL


def _amended(kind: str) -> Score:
    gain = {claims.PLAIN: 0.0, claims.AVERAGED: 0.05, claims.FALLING: 0.05, claims.BOTH: 0.15}[kind]
    return lambda **at: 0.7 + gain * (1.15 - at["noise_multiplier"] + 0.5)


def _of_curves() -> Iterator[Criterion]:
    """Criteria on learning curves, with five repetitions."""
    points = {"bound": (0.1, 1.0, 10.0), "step": tuple(range(100, 2100, 100))}
    clip, normal = (Part(method=method, axes=points) for method in ("dpsgd", "dpnsgd"))
    falls = [
        Part(method=one.method, axes=points, score=lambda **at: 0.8 - 0.1 * (at["bound"] == 10))
        for one in (clip, normal)
    ]
    spread = Part(method="dpsgd", axes=points, score=lambda **at: 0.8 - 0.2 * (at["bound"] == 10))
    rough = Part(
        method="dpnsgd", axes=points, score=lambda **at: 0.8 + 0.05 * ((at["step"] // 100) % 2) * (at["bound"] == 0.1)
    )
    for name, claim, effect in (
        ("a larger bound ends lower", _biased, tuple(falls)),
        ("accuracy flat in r, not in c", _flat, (spread, normal)),
        ("the loss fluctuates more", _rough, (clip, rough)),
    ):
        yield Criterion(name=name, claim=claim, nothing=(clip, normal), effect=effect, repeats=5)


def _courses(rows: pd.DataFrame, method: str) -> learning_curves.Courses:
    own = rows[rows["method"] == method].rename(columns={"accuracy": learning_curves.LOSS})
    own = own.assign(**{learning_curves.ACCURACY: own[learning_curves.LOSS]})
    return {
        int(str(repeat)): {float(str(bound)): course.reset_index(drop=True) for bound, course in group.groupby("bound")}
        for repeat, group in own.groupby("repeat")
    }


def _biased(rows: pd.DataFrame) -> ClaimEvidence:
    families = (
        learning_curves.family_of_clipping_method("dpsgd"),
        learning_curves.family_of_normalizing_method("dpnsgd"),
    )
    return learning_curves.evidence_that_bounding_raises_loss(
        {family: _courses(rows, family.method) for family in families}
    )


def _flat(rows: pd.DataFrame) -> ClaimEvidence:
    return learning_curves.evidence_that_accuracy_is_flat_in_r(_courses(rows, "dpsgd"), _courses(rows, "dpnsgd"))


def _rough(rows: pd.DataFrame) -> ClaimEvidence:
    return learning_curves.evidence_that_small_r_fluctuates(
        _courses(rows, "dpsgd"), _courses(rows, "dpnsgd"), c=0.1, r=0.1
    )


def _rows(part: Part, repeats: int) -> pd.DataFrame:
    names = list(part.axes)
    points = [dict(zip(names, values, strict=True)) for values in product(*part.axes.values())]
    fixed = {"method": part.method, "state": State.FINISHED}
    return pd.DataFrame(
        [
            {**fixed, **point, "repeat": repeat, "accuracy": score}
            for point in points
            for score in (float(part.score(**point)),)
            for repeat in range(1, repeats + 1)
        ]
    )


Row = Mapping[str, str]


def rates() -> Iterator[Row]:
    """How often each criterion gives each verdict on noise, and holds on the planted effect."""
    for one in criteria():
        noise, effect = on_noise(one), on_effect(one)
        shares = {
            "noise: holds": noise[Verdict.HOLDS] / TABLES,
            "noise: margin missed": noise[Verdict.MISSED] / TABLES,
            "noise: refuted": noise[Verdict.REFUTED] / TABLES,
            "planted effect: holds": effect[Verdict.HOLDS] / PLANTED,
        }
        yield {"criterion": one.name, "runs of a point": str(one.repeats), **_percent(shares)}


def _percent(shares: Mapping[str, float]) -> Row:
    return {name: f"{100 * share:.1f}" for name, share in shares.items()}


def boundary() -> Iterator[Row]:
    """Verdicts that two best scores are close where they differ by exactly the margin."""
    for name, (score, std) in BOUNDARIES.items():
        found = on_boundary(name, score, std, TABLES)
        shares = {"holds": found[Verdict.HOLDS] / TABLES, "refuted": found[Verdict.REFUTED] / TABLES}
        yield {"standard deviation of three runs": name, **_percent(shares)}


def on_boundary(
    name: str, score: Score, std: Callable[[pd.DataFrame], float | pd.Series], tables: int
) -> Counter[Verdict]:
    """How often two best scores that differ by exactly the margin are close by each verdict."""
    random = Generator(Philox(crc32(name.encode())))
    rows = table([_grid("dpnsgd", score), _grid("dpsgd", lambda **at: score(**at) - claims.CLOSE.most)], 3)
    return Counter(
        claims.evidence_that_best_scores_are_close(noisy(rows, 3, std(rows), random), ("dpnsgd", "dpsgd")).verdict
        for _ in range(tables)
    )


@dataclass(frozen=True, kw_only=True)
class SlopeTables:
    """Made-up tables in which best lr ~ clip_norm^`slope`, nan if there is no such slope, whatever else is in them.

    `score` is the true score by log10 of lr and of the clip norm, and `std` the noise of a run by log10 of lr.
    """

    kind: str
    slope: float
    score: Callable[[float, float], float]
    rates: Sequence[float] = tuple(np.geomspace(1e-3, 1e3, 13))
    std: Callable[[float], float] = lambda lr: NOISE_STD

    @property
    def rows(self) -> pd.DataFrame:
        """The table with its true scores, three runs of each point."""
        axes = {LR: self.rates, CLIP: tuple(np.geomspace(10**-1.5, 10**1.5, 14)), **NOISE}
        score: Score = lambda **at: self.score(math.log10(at[LR]), math.log10(at[CLIP]))  # noqa: E731
        return table([Part(method="dpsgd", axes=axes, score=score)], 3)

    def slopes(self, tables: int) -> Iterator[Slope]:
        """The slope of each of so many tables."""
        random, rows = Generator(Philox(crc32(f"{self.kind} {self.slope}".encode()))), self.rows
        std = rows[LR].map(lambda lr: self.std(math.log10(lr)))
        for _ in range(tables):
            yield slope_of_best_rate(score_grid(noisy(rows, 3, std, random), CLIP), BEST_CONSTANT)

    def told_and_covered(self, tables: int) -> tuple[int, int, float]:
        """How many slopes are told, how many of their intervals hold the true one, and their median width."""
        told = [one.estimate for one in self.slopes(tables) if not one.reason]
        widths = [one.high - one.low for one in told]
        return len(told), sum(one.low <= self.slope <= one.high for one in told), float(np.median(widths or [math.nan]))


REGIMES = "slope -2.7, then -1.16, then -.25"


def slope_tables() -> Iterator[SlopeTables]:
    """All kinds of tables."""
    for slope in (-1.0, -0.5, 0.0):
        optimum = partial(_optimum, slope)
        yield SlopeTables(kind="clear optima", slope=slope, score=optimum)
        yield SlopeTables(kind="one shallow false optimum", slope=slope, score=partial(_with_false_optimum, slope))
        yield SlopeTables(kind="plateaus", slope=slope, score=partial(_plateau, slope))
        short = tuple(np.geomspace(10**-1.5, 10**1.5, 7))
        yield SlopeTables(kind="optima beyond the grid", slope=slope, score=partial(_beyond, slope), rates=short)
        yield SlopeTables(
            kind="unequal noise", slope=slope, score=optimum, std=lambda lr: (0.002, 0.03)[round(2 * lr) % 2]
        )
    yield SlopeTables(kind=REGIMES, slope=math.nan, score=_three_regimes)


def _optimum(slope: float, lr: float, clip: float) -> float:
    return max(0.85 - 0.1 * (lr - slope * clip) ** 2, 0.3)


def _plateau(slope: float, lr: float, clip: float) -> float:
    """The best scores over a factor of 16 in lr."""
    return 0.85 - 0.1 * max(abs(lr - slope * clip) - 0.6, 0) ** 2


def _with_false_optimum(slope: float, lr: float, clip: float) -> float:
    """Runs of the smallest clip norm hardly learn, and are best where the true slope would not have it."""
    return _optimum(slope, lr, clip) if clip > -1.4 else 0.5 + 0.06 * math.exp(-(((lr + 1) / 0.4) ** 2))


def _beyond(slope: float, lr: float, clip: float) -> float:
    """The best lr of some small clip norms is above the grid; with slope -1 large ones have it near the other end."""
    return _optimum(slope, lr, clip) if clip > -0.8 else 0.6 + 0.1 * lr


def _three_regimes(lr: float, clip: float) -> float:
    return _optimum(1.0, lr, float(np.interp(clip, (-1.5, -0.5, 0.5, 1.5), (2.7, 0, -1.16, -1.41))))


def slope_rates(tables: int = TABLES) -> Iterator[Row]:
    """How often a slope is told, and its interval has the true one, for each kind of tables."""
    for one in slope_tables():
        told, covered, width = one.told_and_covered(tables)
        known = told and one.kind != REGIMES
        yield {
            "tables": one.kind,
            "true slope": "" if one.kind == REGIMES else f"{one.slope:g}",
            **_percent({"told": told / tables}),
            "covered": f"{100 * covered / told:.1f}" if known else "",
            "median width": f"{width:.2g}" if told else "",
        }


def coverage() -> Iterator[Row]:
    """How often the interval of a grid's best score has the best true score, and its median width in points."""
    for name, (score, std) in SPREADS.items():
        random = Generator(Philox(crc32(name.encode())))
        rows = table([_grid("dpsgd", score)], 3)
        found = [_best(noisy(rows, 3, std(rows), random)) for _ in range(TABLES)]
        share = np.mean([one.low <= rows["accuracy"].max() <= one.high for one in found])
        width = 100 * np.median([one.high - one.low for one in found])
        yield {"spread of three runs": name, **_percent({"covered": float(share)}), "median width": f"{width:.2g}"}


def _best(rows: pd.DataFrame) -> IntervalEstimate:
    return weighted_mean_of_ordered_scores(point_scores(rows), weights_of_best).estimate("best")


MEASURED: Mapping[str, Callable[[], Iterator[Row]]] = {
    "criteria": rates,
    "boundary": boundary,
    "coverage": coverage,
    "slopes": slope_rates,
}
"""The tables of rates by name, in percent."""


def read_rates(name: str) -> list[Row]:
    """A table of rates as it was measured."""
    with (TABLES_BESIDE / f"rates_{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write_rates(name: str) -> None:
    """Measures a table of rates."""
    rows = list(MEASURED[name]())
    with (TABLES_BESIDE / f"rates_{name}.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, rows[0], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def summary() -> str:
    """The worst rates of each table."""
    criteria, close, best, slopes = map(read_rates, MEASURED)

    def worst(rows: Sequence[Row], column: str, of: Callable[[Sequence[float]], float] = max) -> str:
        return f"{of([float(row[column]) for row in rows if row[column]]):.1f}%"

    sloped = [row for row in slopes if row["true slope"]]
    return f"""\
- [{len(criteria)} criteria](reproduction/rates_criteria.csv): on noise each says holds on at most \
{worst(criteria, "noise: holds")} of the tables and refuted on at most {worst(criteria, "noise: refuted")}; a planted \
effect holds on at least {worst(criteria, "planted effect: holds", min)}.
- [Two best scores that differ by exactly the margin](reproduction/rates_boundary.csv): close on at most \
{worst(close, "holds")}, refuted on at most {worst(close, "refuted")}.
- [A best score](reproduction/rates_coverage.csv): its interval covers the true one on at least \
{worst(best, "covered", min)}.
- [e](reproduction/rates_slopes.csv): told on {worst(sloped, "told", min)} (optima beyond the grid) to \
{worst(sloped, "told")}, and its interval covers the true slope on at least {worst(sloped, "covered", min)}; where \
there is no one slope, told on {worst([row for row in slopes if not row["true slope"]], "told")}.
"""


def insert(page: str) -> str:
    """The page with the summary between its marks."""
    pattern = re.compile(f"({re.escape(BEGIN)}).*?({re.escape(END)})", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}\n{summary()}\n{found[2]}", page)


if __name__ == "__main__":
    for name in sys.argv[1:] or MEASURED:
        write_rates(name)
    PAGE.write_text(insert(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
