"""About how long a plan takes on this machine: one step on random inputs, timed, times the steps.

No data are touched. `python -m sweeper.estimate` reads trial configurations as JSON and prints seconds per step, so
that planning itself need not import torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from accounting.plan import Plan

EXAMPLES = 64
LONG_ENOUGH = 0.2
"""Seconds: a shorter measurement is repeated with more examples, up to the whole batch."""

TIMEOUT_SECONDS = 300


def shapes_of(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """One configuration for each kind of step that a plan holds: data set, model, batch size."""
    return {_kind(trial.config): trial.config for trial in plan.trials}


def plan_seconds(plan: Plan, per_step: Mapping[str, float], workers: int) -> float:
    """Wall time of the whole plan: steps times seconds per step, shared among workers."""
    steps: float = sum(per_step[_kind(trial.config)] * trial.config["steps"] for trial in plan.trials)
    return steps / max(1, workers)


def seconds_per_step(configs: Sequence[Mapping[str, Any]], device: str, threads: int) -> list[float]:
    """Times a training step of each configuration on random inputs; also refuses models that cannot be trained.

    Raises ValueError where a model mixes examples or does not fit its data set's shape.
    """
    import torch

    from sweeper.declaration import build, declare
    from sweeper.trial import make_model, resolve_device
    from trainers.engines.isolation import refuse_mixing

    torch.set_num_threads(threads)
    device = resolve_device(device)
    found = []
    for config in configs:
        shape, batch_size = tuple(config["dataset"]["shape"]), config["sampler"]["batch_size"]
        model = make_model(config, "estimate")
        refuse_mixing(model, shape)
        engine, transform = build(config["engine"], "engine"), declare(config).trainer.transform
        generator = torch.Generator().manual_seed(0)
        model.to(device)

        def seconds(examples: int) -> float:
            inputs = torch.rand(examples, *shape, generator=generator).to(device)
            targets = torch.zeros(examples, dtype=torch.int64, device=device)
            started = time.perf_counter()
            engine.weighted_sum(model, inputs, targets, transform, None)
            return time.perf_counter() - started

        seconds(2)
        examples = min(EXAMPLES, batch_size)
        while (taken := seconds(examples)) < LONG_ENOUGH and examples < batch_size:
            examples = min(4 * examples, batch_size)
        found.append(taken * batch_size / examples)
    return found


def ask(configs: Sequence[Mapping[str, Any]], device: str, threads: int) -> list[float] | None:
    """`seconds_per_step` in a process of its own; None where that process gave no answer."""
    question = json.dumps({"configs": list(configs), "device": device, "threads": threads})
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "sweeper.estimate"],
            input=question,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=True,
        )
        found: list[float] = json.loads(answer.stdout.strip().splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return None
    return found


def _kind(config: Mapping[str, Any]) -> str:
    parts = {name: config[name] for name in ("dataset", "model", "sampler", "engine")}
    return json.dumps(parts | {"trainer": config["trainer"]["_target_"]}, sort_keys=True)


if __name__ == "__main__":
    print(json.dumps(seconds_per_step(**json.load(sys.stdin))))
