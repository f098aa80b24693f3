"""Facts of the search behind a figure: its sizes, noise and price, and when, by which code and at which cost it ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from dpsweep.accounting.notation import epsilon_up
from dpsweep.reports.content.charges import read_bill
from dpsweep.reports.content.formatting import number
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.reproduction.results.processor_time import ProcessorTime, read_processor_time

NOBODY = "protects nobody, since the data were declared public"
MOST_VALUES = 4
"""Values of a setting that are written out; of more, the ends are."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class TrainingFacts:
    """Facts of one search for readers.

    `noise_multipliers`, `batch_sizes` and `steps` hold the distinct values in ascending order; `epsilon` is the price
    of the whole search as text at `delta`; `commits` are the versions of the program's source that trained, empty if
    unknown; `core_minutes` is the processor time of the whole command over 60 seconds, None if it was not measured.
    """

    account: str
    records: int
    runs: int
    points: int
    batch_sizes: tuple[int, ...]
    steps: tuple[int, ...]
    noise_multipliers: tuple[float, ...]
    epsilon: str
    delta: float
    adjacency: str
    began: str
    ended: str
    commits: tuple[str, ...]
    core_minutes: float | None
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self) | {"versions": dict(self.versions)}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TrainingFacts:
        """Reads `to_json`'s form."""
        several = ("batch_sizes", "steps", "noise_multipliers", "commits")
        return cls(**{**form, **{name: tuple(form[name]) for name in several}})

    @property
    def sizes(self) -> str:
        """The sizes in one sentence."""
        repeats = f", {self.runs // self.points} each" if self.runs > self.points else ""
        noise = f"noise multiplier {_range(self.noise_multipliers)}"
        return (
            f"{self.points} points{repeats}, on `{self.account}` ({self.records} records); batches of "
            f"{_range(self.batch_sizes)}; {_range(self.steps)} steps; {noise}; the whole search {self._price}."
        )

    @property
    def provenance(self) -> str:
        """Date, commit and cost in one sentence."""
        commits = " and ".join(f"`{commit}`" for commit in self.commits) or "an unknown commit"
        cost = "a cost that was not measured" if self.core_minutes is None else f"{self.core_minutes:.3g} core-minutes"
        return f"Trained on {self.ended[:10]} at {commits}, with torch {self.versions.get('torch', '?')}, in {cost}."

    @property
    def _price(self) -> str:
        return self.epsilon if self.epsilon == NOBODY else f"epsilon {self.epsilon} at delta {number(self.delta)}"


def facts_of(sweep: Sweep, noises: Iterable[float]) -> TrainingFacts:
    """The facts of a finished sweep with these noise multipliers, and the processor time in the figure's folder."""
    configs = [trial.config for trial in sweep.plan.trials]
    results = tuple(sweep.results.values())
    cost = read_processor_time(sweep.folder.parents[1])
    return TrainingFacts(
        account=sweep.plan.account,
        records=int(configs[0]["dataset"]["records"]),
        runs=len(sweep.table),
        points=len(sweep.table.drop_duplicates([*sweep.axes, "method"])),
        batch_sizes=_distinct(config["sampler"]["batch_size"] for config in configs),
        steps=_distinct(config["steps"] for config in configs),
        noise_multipliers=_distinct(map(float, noises)),
        epsilon=NOBODY if sweep.plan.public else epsilon_up(read_bill(sweep).epsilon),
        delta=sweep.plan.delta,
        adjacency=sweep.plan.adjacency.value,
        began=min((result.started for result in results), default=""),
        ended=max((result.ended for result in results), default=""),
        commits=cost.commits,
        core_minutes=_minutes(cost),
        versions={name: text for result in results for name, text in result.versions.items()},
    )


def _minutes(cost: ProcessorTime) -> float | None:
    return None if cost.seconds is None else round(cost.seconds / 60, 2)


def _distinct(values: Iterable[Number]) -> tuple[Number, ...]:
    return tuple(sorted(set(values)))


def _range(values: Sequence[float]) -> str:
    """All of up to four values, or the ends.

    >>> _range((2.0, 8.0)), _range((1, 2, 3, 4, 5)), _range((7,)), _range(())
    ('2 and 8', '1 to 5', '7', 'none')
    """
    if len(values) > MOST_VALUES:
        return f"{number(values[0])} to {number(values[-1])}"
    *others, last = map(number, values) if values else ("none",)
    return f"{', '.join(others)} and {last}" if others else last
