"""The price of tuning by random stopping (LT) and by composition (MA), as tables and figures of one paper.

*Source*: Mohapatra, Sasy, He, Kamath, Thakkar 2022 (The Role of Adaptive Optimizers for Honest Private Hyperparameter
Selection): Figure 1, Table 3 and Figure 9, with noise multiplier 4, batches of 250 and Mironov's conversion. Random
stopping needs deltas near 1e-14, hence high orders; with orders up to 63 only, MNIST has 3.17 instead of 3.01.
Figure 1's growth from 4.8 to 7.3 times at a million records is not caused by missing orders: beyond an order near
sigma^2 ln(1/q) the divergence of a sampled Gaussian jumps, and a small sample rate needs that order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dpsweep.accounting.accountants.rdp import Conversion, Rdp
from dpsweep.accounting.events.build import DpEvent, poisson_gaussian, random_stopping, repeat
from dpsweep.accounting.guarantee import Adjacency

BATCH, NOISE_MULTIPLIER, STEPS, DELTA, DELTA2 = 250, 4.0, 10_000, 1e-5, 1e-10
TABLE_DELTA2 = 1e-20
ORDERS: tuple[float, ...] = tuple(
    [1 + step / 20 for step in range(1, 40)]
    + [3 + step / 10 for step in range(80)]
    + [float(order) for order in range(11, 513)]
)
MOMENTS = Rdp(conversion=Conversion.MIRONOV, orders=ORDERS)
MOST_CANDIDATES = 2000
"""Largest number of candidates in the bisection of `_number_of_affordable_candidates`."""


def _random_stopping_event(candidates: int, run: DpEvent) -> DpEvent:
    return random_stopping(run, gamma=1 / candidates, delta2=TABLE_DELTA2)


OPTIMIZERS: Mapping[str, Callable[[DpEvent], DpEvent]] = {
    "DPSGD": partial(_random_stopping_event, 40),
    "DPMomentum": partial(_random_stopping_event, 280),
    "DPAdam": lambda run: repeat(run, 4),
}
"""Table 2's grids: the first two by random stopping with gamma = 1 / candidates, DPAdam's by composition."""


@dataclass(frozen=True, kw_only=True)
class PaperDataSet:
    """A data set of Table 3; `delta` is a tenth of the delta in the paper's text, which reproduces its numbers."""

    name: str
    records: int
    steps: int
    delta: float
    printed: tuple[float, float, float]


DATA_SETS = (
    PaperDataSet(name="Adult", records=36_177, steps=10_000, delta=1e-6, printed=(5.01, 5.23, 1.91)),
    PaperDataSet(name="ENRON", records=4137, steps=5000, delta=1e-5, printed=(30.86, 32.31, 12.80)),
    PaperDataSet(name="Gisette", records=4800, steps=5000, delta=1e-5, printed=(26.40, 27.64, 10.76)),
    PaperDataSet(name="MNIST", records=60_000, steps=10_000, delta=1e-6, printed=(3.01, 3.14, 1.14)),
)


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """A cell of Table 3: epsilon of tuning an optimizer on a data set."""

    data_set: str
    optimizer: str
    printed: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class CandidatesRow:
    """A point of Figure 9: epsilon of a number of candidates by composition and by random stopping."""

    candidates: int
    composition: float
    random_stopping: float


@dataclass(frozen=True, kw_only=True)
class BlowUpRow:
    """A point of Figure 1, left and right: one run alone, the same run as the only try of random stopping, and how many
    candidates composition affords for that price.
    """

    records: int
    one_run: float
    random_stopping: float
    candidates: int

    @property
    def ratio(self) -> float:
        """The rule's epsilon divided by the run's epsilon."""
        return self.random_stopping / self.one_run


def rows_of_table_3() -> tuple[CostRow, ...]:
    """All twelve cells of Table 3, row by row."""
    return tuple(
        CostRow(data_set=data.name, optimizer=optimizer, printed=printed, epsilon=_epsilon_of_table_cell(data, tuned))
        for data in DATA_SETS
        for (optimizer, tuned), printed in zip(OPTIMIZERS.items(), data.printed, strict=True)
    )


def rows_of_figure_9(records: int, candidates: Iterable[int] = range(1, 41)) -> tuple[CandidatesRow, ...]:
    """Epsilon of both rules over the number of candidates; random stopping has as many expected tries."""
    return tuple(
        CandidatesRow(
            candidates=count,
            composition=_composition_epsilon(records, count),
            random_stopping=_random_stopping_epsilon(records, gamma=1 / count),
        )
        for count in candidates
    )


def crossing_number_of_candidates(rows: Iterable[CandidatesRow]) -> int:
    """The largest number of candidates up to which composition never costs more; 0 if it costs more at once."""
    last = 0
    for row in rows:
        if row.composition > row.random_stopping:
            break
        last = row.candidates
    return last


def rows_of_figure_1_blow_up(records: Iterable[int]) -> tuple[BlowUpRow, ...]:
    """The price of the run alone and of random stopping with gamma = 1 (one try), and the candidates at that price."""
    return tuple(
        BlowUpRow(
            records=size,
            one_run=MOMENTS.epsilon(_event_of_one_run(size), DELTA, Adjacency.ADD_OR_REMOVE_ONE),
            random_stopping=price,
            candidates=_number_of_affordable_candidates(size, price),
        )
        for size in records
        for price in (_random_stopping_epsilon(size, gamma=1.0),)
    )


def epsilons_of_figure_1_stopping(records: Iterable[int], gammas: Sequence[float]) -> dict[int, tuple[float, ...]]:
    """The price of random stopping over gamma, by number of records; it grows little with the expected tries."""
    return {size: tuple(_random_stopping_epsilon(size, gamma=gamma) for gamma in gammas) for size in records}


def _number_of_affordable_candidates(records: int, epsilon: float) -> int:
    """The largest number of candidates up to `MOST_CANDIDATES` that composition affords."""
    counts = range(1, MOST_CANDIDATES + 1)
    return bisect_right(counts, epsilon, key=partial(_composition_epsilon, records))


def _epsilon_of_table_cell(data: PaperDataSet, tuned: Callable[[DpEvent], DpEvent]) -> float:
    return MOMENTS.epsilon(tuned(_event_of_one_run(data.records, data.steps)), data.delta, Adjacency.ADD_OR_REMOVE_ONE)


def _composition_epsilon(records: int, candidates: int) -> float:
    return MOMENTS.epsilon(repeat(_event_of_one_run(records), candidates), DELTA, Adjacency.ADD_OR_REMOVE_ONE)


def _random_stopping_epsilon(records: int, *, gamma: float) -> float:
    event = random_stopping(_event_of_one_run(records), gamma=gamma, delta2=DELTA2)
    return MOMENTS.epsilon(event, DELTA, Adjacency.ADD_OR_REMOVE_ONE)


def _event_of_one_run(records: int, steps: int = STEPS) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=BATCH / records, noise_multiplier=NOISE_MULTIPLIER), steps)
