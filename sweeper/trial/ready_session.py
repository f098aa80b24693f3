"""A session with everything that its training needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsweep.sweeper.trial.session import Session

if TYPE_CHECKING:
    from torch import nn

    from dpsweep.trainers.randomness import Streams
    from dpsweep.trainers.training.checkpoint import TrialJournal
    from dpsweep.trainers.training.run import Progress, Run
    from dpsweep.trainers.training.weight_delta import WeightDelta


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadySession:
    """A session, its run, model, streams and journal, and the progress that it continues, None for a new run.

    `initial` are the digests of the weights that training starts from.
    """

    session: Session
    run: Run
    model: nn.Module
    initial: WeightDelta
    streams: Streams
    journal: TrialJournal
    since: Progress | None

    @property
    def step(self) -> int:
        """The steps that earlier sessions took."""
        return 0 if self.since is None else self.since.step
