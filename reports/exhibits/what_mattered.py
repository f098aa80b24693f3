"""What explains a method's scores: its learning rate, its other setting, or both together; and advice.

Every sentence rests on an interval, and is left out where the runs cannot decide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from dpsweep.reports.content.facts import RESULTS
from dpsweep.reports.content.formatting import axis_label, interval, method_label, number, percent
from dpsweep.reports.content.tables import Item, Sheet
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.statistics.ridge import Ridge, ridge
from dpsweep.reports.statistics.run_rows import CLIP, LR, METHOD, NOISE
from dpsweep.reports.statistics.score_grid import ScoreGrid, score_grid
from dpsweep.reports.statistics.variance_shares import BY_BOTH, BY_RATE, BY_SETTING, VarianceShares, variance_shares
from dpsweep.reports.statistics.verdict import IntervalEstimate, Verdict

HARDLY = 0.1
"""Share of the variance up to which a setting, alone and with the other, hardly matters."""

TOGETHER = 0.25
"""Share of the variance by the interaction from which on two settings must be tuned together."""


@dataclass(frozen=True, kw_only=True)
class SettingEffect:
    """A method at one noise, its setting beside the learning rate, and the shares that each explains."""

    title: str
    setting: str
    shares: VarianceShares
    ridge: Ridge | None

    @property
    def estimates(self) -> tuple[IntervalEstimate, IntervalEstimate, IntervalEstimate]:
        """The shares by the learning rate, by the setting, and by their interaction."""
        names = ("lr", self.setting, "their interaction")
        by_rate, by_setting, by_both = (
            self.shares.of(name, part) for name, part in zip(names, (BY_RATE, BY_SETTING, BY_BOTH), strict=True)
        )
        return by_rate, by_setting, by_both


def what_mattered(table: pd.DataFrame) -> Exhibit | None:
    """The exhibit for every full grid whose points differ by more than noise; None without one."""
    effects = list(_effects(table))
    if not effects:
        return None
    return Exhibit(
        key="what-mattered",
        title="What mattered",
        note="Shares of the variance of the scores over a method's grid, in which a diverged run scores 0; the part "
        "that noise explains is taken off. The intervals (95 %) are from repetitions where there are some, and else "
        "from the number of scored records and the noise of their counts: then they do not cover that another run of "
        "the same point may end elsewhere. Shares depend on the ranges of the grid.",
        source=RESULTS,
        findings=tuple(" ".join(_sentences(effect)) for effect in effects),
        sheets=(_sheet(effects),),
    )


def _effects(table: pd.DataFrame) -> Iterator[SettingEffect]:
    if LR not in table:
        return
    for (method, noise), rows in table.groupby([METHOD, NOISE], sort=False, dropna=False):
        key = _setting(rows)
        grid = None if key is None else score_grid(rows, key)
        shares = None if grid is None else variance_shares(grid)
        if key is not None and shares is not None:
            at = "" if rows[NOISE].isna().all() else f" at noise multiplier {number(noise)}"
            yield SettingEffect(
                title=f"{method_label(str(method))}{at}",
                setting=axis_label(key),
                shares=shares,
                ridge=_ridge(grid, key),
            )


def _setting(rows: pd.DataFrame) -> str | None:
    """The only setting of the trainer beside its learning rate that varies; None if there is none, or several."""
    names = [str(name) for name in rows.columns if str(name).startswith("trainer.") and name != LR]
    varying = [name for name in names if rows[name].nunique() > 1]
    if len(varying) != 1 or not rows[varying[0]].map(_is_number).all():
        return None
    return varying[0]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ridge(grid: ScoreGrid | None, key: str) -> Ridge | None:
    return ridge(grid) if key == CLIP else None


def _sentences(effect: SettingEffect) -> Iterator[str]:
    by_rate, by_setting, by_both = effect.estimates
    yield (
        f"{effect.title}: of the variance over the grid, lr explains {_percent(by_rate)}, {effect.setting} "
        f"{_percent(by_setting)}, and their interaction {_percent(by_both)}."
    )
    yield from _advice(effect, by_both)
    if effect.ridge is not None and effect.ridge.exponent.known:
        one = effect.ridge.exponent
        yield (
            f"The best lr goes like clip_norm to the power of {one.value:.2f} (95 %: {one.low:.2f} to {one.high:.2f}), "
            f"by {effect.ridge.source}. At -1 only their product counts; at 0 each can be tuned alone."
        )


def _advice(effect: SettingEffect, by_both: IntervalEstimate) -> Iterator[str]:
    setting = effect.shares.of(effect.setting, BY_SETTING, BY_BOTH)
    rate = effect.shares.of("lr", BY_RATE, BY_BOTH)
    if setting.verdict(most=HARDLY) is Verdict.HOLDS:
        yield f"So {effect.setting} hardly matters here, alone or with lr: {_percent(setting)}; lr does."
    if rate.verdict(most=HARDLY) is Verdict.HOLDS:
        yield f"So lr hardly matters here, alone or with {effect.setting}: {_percent(rate)}; {effect.setting} does."
    if by_both.verdict(least=TOGETHER) is Verdict.HOLDS:
        yield f"So tune lr and {effect.setting} together: the best value of one depends on the other."


def _percent(one: IntervalEstimate) -> str:
    return f"{percent(one.value)} % ({interval(one.low, one.high)})"


def _sheet(effects: list[SettingEffect]) -> Sheet:
    rows = tuple(
        (
            Item(text=effect.title),
            Item(text=one.name),
            *(Item(text=percent(share), key=share) for share in (one.value, one.low, one.high)),
        )
        for effect in effects
        for one in effect.estimates
    )
    return Sheet(
        caption="Shares of the variance, in percent",
        columns=("method", "explained by", "share", "at least", "at most"),
        rows=rows,
    )
