"""docs/scores.md is true: its numbers are computed, its scores and metrics are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from dpsweep.accounting.stored_names.tags import FAMILY_OF
from dpsweep.trainers.declarations.covering_intervals import NoisyCount, share_interval
from dpsweep.trainers.declarations.losses import CrossEntropy, SquaredError, default_rate_factor, example_weights
from dpsweep.trainers.declarations.metrics import ACCURACY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scores.md").read_text()


def test_the_intervals_of_the_page_are_computed() -> None:
    for cap, shown in ((1.0, "16 to 104 with a cap of 1,"), (0.25, "33 to 77 with a cap of 0.25.")):
        loss, quality = SquaredError(cap=cap), 1 - (1 / 6) ** 2 / cap
        counts = (NoisyCount(value=88 * share, std=0.0) for share in (quality, 1 - quality))
        low, high = share_interval(*counts, 0.05, whole_units=False)
        assert shown.startswith(f"{325 * loss.mean_error(high):.0f} to {325 * loss.mean_error(low):.0f} with")
        assert shown in PAGE


def test_the_scores_and_metrics_are_those_that_there_are() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    scores = {path.stem for path in (ROOT / "conf" / "score").glob("*.yaml")}
    metrics = {tag for tag, family in FAMILY_OF.items() if family == "metric"}
    assert named == scores | metrics | {ACCURACY}


def test_what_the_page_says_of_class_weights_is_computed() -> None:
    loss = CrossEntropy(class_weights=(1, 3))
    assert example_weights(loss, torch.tensor([0, 1])).tolist() == [1 / 3, 1]
    assert "here 1/3 and 1." in PAGE
    assert f"{default_rate_factor(loss):g} for `[1,3]`" in PAGE
    balanced = re.findall(
        r"^\| (?:null|\[[\d,]+\]) \| ([\d.]+) ± [\d.]+ \| ([\d.]+) ± [\d.]+ \| ([\d.]+) ±", PAGE, re.M
    )
    assert len(balanced) == 4
    for mean, *recalls in balanced:
        assert abs(float(mean) - sum(map(float, recalls)) / 2) < 0.11
    light = [float(lighter) for _, lighter, _ in balanced]
    lost = [int(share) for share in re.search(r"loses (\d+) of 100.*?(\d+) with.*?(\d+) with", PAGE).groups()]
    assert lost == [round(light[0] - other) for other in light[1:]]
