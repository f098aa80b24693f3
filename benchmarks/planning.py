"""How planning grows with the grid: 1000 points planned, priced and charged against 10, in one process, without torch.

python benchmarks/planning.py [--toy] [--rounds 5] [--many 1000]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from measuring.aims import Aim
from measuring.script import start

from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.records.sweep_folder import SweepFolder
from dpsweep.accounting.searches.interface import search_for_plan
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_internals import VERSION_BASE
from dpsweep.sweeper.coordinator.request import plan_settings
from dpsweep.sweeper.planning.grid import Grid, sort_overrides_into_request
from dpsweep.sweeper.planning.plan_builder import compose_priced_plan
from dpsweep.sweeper.searches.admission import Retry, charge_and_admit_runs


@dataclass(frozen=True, kw_only=True)
class Size:
    rounds: int = 5
    few: int = 10
    many: int = 1000


def seconds(count: int, offset: int) -> float:
    values = ",".join(f"{1 + offset + step / 10000:.4f}" for step in range(count))
    arguments = ["dataset=digits", "trainer=dpnsgd", f"trainer.lr={values}", "trainer.regularizer=1"]
    started = time.perf_counter()
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(CONF), **VERSION_BASE):
        loader = GlobalHydra.instance().config_loader()
        request = sort_overrides_into_request(arguments, loader)
        config = loader.load_configuration("config", list(request.fixed), run_mode=RunMode.MULTIRUN)
        priced = compose_priced_plan(Grid(request, config, loader).points(), plan_settings(config, request.keys))
    with tempfile.TemporaryDirectory() as place:
        search = search_for_plan(priced.plan, SweepFolder(root=Path(place)))
        due = charge_and_admit_runs(priced, search, Ledger(Path(place) / "ledger.sqlite"), Retry.KILLED)
        elapsed = time.perf_counter() - started
    assert len(due) == count
    return elapsed


def main(size: Size) -> list[Aim]:
    few, many = size.few, size.many
    seconds(few, 0)
    pairs = [(seconds(few, 1 + turn), seconds(many, 1 + turn)) for turn in range(size.rounds)]
    small, large = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"{few} points {small:.2f} s, {many} points {large:.2f} s, ratio {ratio:.2f}")
    return [
        Aim(name=f"time of {many} points over that of {few}", measured=ratio, at_most=5),
        Aim(name="modules of torch that planning imported", measured=float("torch" in sys.modules), at_most=0),
    ]


if __name__ == "__main__":
    start(main, full=Size(), toy=Size(rounds=1, few=2, many=4), about=__doc__)
