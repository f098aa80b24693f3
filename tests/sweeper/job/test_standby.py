"""A worker without a try trains on generated records, which it generates once."""

from __future__ import annotations

from typing import Any

import pytest

from dpsweep.sweeper.job import secret_tries
from dpsweep.sweeper.trial.session import Machine
from dpsweep.trainers.training.run_records import RunRecords
from tests.randomized import TRAINS
from tests.sweeper.search_programs import SELECTION, Compose

pytestmark = TRAINS


def test_all_trainings_of_a_waiting_worker_read_the_same_generated_records(
    compose_priced: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits: list[Any] = []

    open_split = RunRecords.open_split

    def watched(*arguments: Any) -> Any:
        splits.append(open_split(*arguments))
        return splits[-1]

    monkeypatch.setattr(RunRecords, "open_split", watched)
    monkeypatch.setattr(secret_tries, "LOOK_SECONDS", 0.0)
    config = compose_priced(SELECTION).plan.trials[0].config
    secret_tries.imitate_training_until_search_over(
        config, Machine(device="cpu", threads=1, chunk=None, data=None), lambda: len(splits) > 2
    )
    assert len(splits) == 3
    assert splits[0] is splits[1] is splits[2]
