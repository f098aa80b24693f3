"""docs/engine.md is true: its numbers are computed, its layers and limits are those of the code."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from dpsweep.accounting import Adjacency, Rdp
from dpsweep.accounting.events.build import DpEvent, compose, poisson_gaussian, repeat, runs_on_shared_batches
from dpsweep.accounting.pricing.calibration import calibrate_noise
from dpsweep.sweeper.trial.blocks import MOST
from dpsweep.trainers.engines.auto import Auto
from dpsweep.trainers.engines.fused import COMPOSITES
from dpsweep.trainers.engines.interface import Minibatch, Task
from dpsweep.trainers.engines.layers import LAYERS
from dpsweep.trainers.engines.recorders import COPIED, Treatment
from dpsweep.trainers.methods.transforms import EXAMPLES_PER_BLOCK, LENGTH_SHARE, Clip
from tests.exactness import Model
from tests.trainers.layer_models import CASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine.md").read_text()


def run(noise_multiplier: float) -> DpEvent:
    return repeat(poisson_gaussian(sample_rate=0.02, noise_multiplier=noise_multiplier), 5000)


def epsilon(runs: DpEvent) -> float:
    return Rdp().epsilon(runs, 1e-5, Adjacency.ADD_OR_REMOVE_ONE)


def test_the_rounding_of_sums_is_computed() -> None:
    u, m = 2.0**-24, EXAMPLES_PER_BLOCK
    block = m * ((1 + u) ** m - 1)
    assert f"m = {m}:" in PAGE
    assert f"less than {block:.5f} of the bound, and gradients are shorter by {1 - LENGTH_SHARE:.5f}" in PAGE
    assert LENGTH_SHARE * (1 + 8 * u) * (1 + 4 * block) + 8 * u < 1


def test_the_prices_of_shared_batches_are_computed() -> None:
    rows = dict(
        re.findall(r"^\| (?:noise|epsilon) (?:for epsilon|at noise multiplier) ([\d.]+) \| (.*) \|$", PAGE, re.M)
    )
    prices = [epsilon(together([run(1.2)] * 35)) for together in (compose, runs_on_shared_batches)]
    assert rows.pop("1.2") == " | ".join(str(round(price)) for price in prices)
    assert list(rows) == ["1", "2", "4", "8"]
    for total, shown in rows.items():
        alone, shared = (
            calibrate_noise(lambda noise, together=together: epsilon(together([run(noise)] * 35)), float(total))
            for together in (compose, runs_on_shared_batches)
        )
        assert shown.strip(" |") == f"{100 * (shared / alone - 1):.1f} % more"


def test_the_engines_are_those_that_there_are() -> None:
    named = set(re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", PAGE, flags=re.MULTILINE))
    assert named == {path.stem for path in (ROOT / "conf" / "engine").glob("*.yaml")}


def rows() -> list[tuple[str, str, str]]:
    """Layers, engine and method of each row of the table of layers."""
    table = PAGE.partition("### Layers")[2].partition("\n\nConvolutions")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    return [(layers, engine, method) for layers, engine, method, _ in cells[2:]]


def layers_of(method: str) -> set[str]:
    names = [
        set(re.findall(r"`(\w+)`", layers)) for layers, engine, by in rows() if (engine, by) == ("`fused`", method)
    ]
    return set[str]().union(*names) - {"Transformer"}


def test_every_layer_is_in_the_row_of_how_its_gradients_are_computed() -> None:
    assert layers_of("rule") == {layer.__name__ for layer in LAYERS}
    assert layers_of("copies") == {layer.__name__ for layer in COPIED}
    assert layers_of("linear maps") == {layer.__name__ for layer in COMPOSITES}
    slow = {case.kind.__name__ for case in CASES.values() if case.treatment is Treatment.TORCH_FUNC}
    assert layers_of("torch.func") == {name for name in slow - layers_of("rule") if hasattr(nn, name)}


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


def twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


LAST_ROWS = {
    "layers of the first six rows called several times": twice,
    "parameters in two layers": tied,
    "weights with a parametrization": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "examples in the second dimension": lambda: Model(
        lambda self, values: self.layer(values[None].repeat(2, 1, 1)).mean(dim=0), layer=nn.Linear(4, 4)
    ),
    "`inplace=True`": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)),
    "weights used without their layer": lambda: Model(lambda self, x: x @ self.layer.weight, layer=nn.Linear(4, 4)),
}


@pytest.mark.parametrize("reason", LAST_ROWS)
def test_auto_chooses_the_engine_of_the_row(
    reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("dpsweep"), "propagate", True)
    (engine,) = (engine for layers, engine, _ in rows() if reason in layers.split(", "))
    with caplog.at_level(logging.INFO, logger="dpsweep"):
        batch = Minibatch(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))
        Auto().bounded_gradient_sum_and_norms(LAST_ROWS[reason](), batch, Task(transform=Clip(clip_norm=1.0)))
    assert f"engine {engine.strip('`')}: Expected" in caplog.text


def test_rows_of_other_engines_say_no_more_than_is_tried_here() -> None:
    tried = {reason for layers, engine, _ in rows() if engine != "`fused`" for reason in layers.split(", ")}
    assert tried == set(LAST_ROWS)


def test_a_job_has_as_many_points_as_the_page_says() -> None:
    assert f"up to {MOST} points of a block" in PAGE
