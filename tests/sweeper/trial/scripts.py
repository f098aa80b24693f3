"""A light training script with planted faults, and what a sweep by it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpsweep.accounting.ledger.ledger import Ledger
from tests.sweeper.digits_sweeps import LIGHT

STEPS = 4
TRAIN = '''
"""Softmax regression by hand, with an accountant that counts; `fault` says what it does wrong."""

import os
import pickle
import signal
import sys
import time

import numpy as np

import dpsweep


class Accountant:
    def __init__(self, history):
        self.history = history

    def step(self, noise, rate):
        self.history.append((noise, rate, 1))


with dpsweep.attempt() as a:
    fault = a.hyperparameters.get("fault", "none")
    rng = np.random.default_rng()
    features, labels = a.train.features.reshape(len(a.train.labels), -1), a.train.labels
    weights, history = pickle.loads(a.resumed) if a.resumed else (np.zeros((features.shape[1], 10)), [])
    accountant = Accountant(history)
    noise = {"no_noise": 0.0, "less_noise": a.noise_multiplier * 0.999}.get(fault, a.noise_multiplier)
    rate = a.sample_rate * (1.01 if fault == "rate" else 1.0)

    def step():
        batch = rng.random(len(labels)) < rate
        logits = features[batch] @ weights
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(shares)), labels[batch]] -= 1
        norms = np.linalg.norm(shares, axis=1) * np.linalg.norm(features[batch], axis=1)
        factors = np.minimum(1, a.clip_norm / np.maximum(norms, 1e-12))
        total = features[batch].T @ (shares * factors[:, None])
        total += rng.normal(size=total.shape) * noise * a.clip_norm
        weights[:] -= a.hyperparameters["lr"] * total / a.batch_size
        accountant.step(noise, rate)

    for number in a.each_step(save=lambda: pickle.dumps((weights, accountant.history))):
        if fault == "skips" and number == 1:
            continue
        step()
        if fault == "slow":
            print("step", number, flush=True)
            time.sleep(0.5)
        if fault == "killed" and number == 2 and a.resumed is None:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "early" and number == 1:
            break
    if fault == "one_more":
        step()
    if fault == "exit":
        sys.exit(3)
    if fault == "never":
        sys.exit(0)
    inputs = a.score_features.reshape(len(a.score_features), -1)
    predictions = (inputs @ weights).argmax(axis=1)
    print("score 0.987654321")
    if fault == "shape":
        predictions = predictions[:-1]
    if fault == "not_numbers":
        predictions = np.full((len(inputs), 10), np.nan)
    if fault == "score":
        predictions = np.array(0.99)
    if fault == "other":
        object.__setattr__(a.given, "attempt", 2)
    with open("environment.txt", "w") as stream:
        stream.write("\\n".join(sorted(os.environ)) + "\\n" + " ".join(sys.argv[1:]))
    files = {} if fault == "nothing" else {"environment.txt": "environment.txt"}
    a.report(event=accountant, predictions=None if fault == "nothing" else predictions, files=files)
'''

SWEEP = (
    "dataset=digits",
    "trainer=script",
    "script=train.py",
    "trainer.lr=2",
    f"steps={STEPS}",
    "privacy.noise_multiplier=8",
    "score.noise_std=2",
    *LIGHT,
)


def write_script(folder: Path) -> None:
    """The script, where a user starts the program."""
    (folder / "train.py").write_text(TRAIN)


def results_of(folder: Path, key: str = "trainer.hyperparameters.fault") -> dict[str, dict[str, Any]]:
    """The result files of a sweep by the value that this axis has."""
    plan = json.loads((folder / "plan.json").read_text())
    trials = [trial for block in plan["blocks"] for trial in block]
    paths = {trial["axes"].get(key, ""): folder / "trials" / trial["id"] / "result.json" for trial in trials}
    return {fault: json.loads(path.read_text()) for fault, path in paths.items() if path.exists()}


def charges(folder: Path) -> int:
    """How often the data set of a test's folder was charged."""
    return len(Ledger(folder / "ledger.sqlite").statement("digits").charges)


def left_behind(folder: Path) -> list[Path]:
    """The private records that scripts were handed and that are still there."""
    return [*(folder / "handed-over").rglob("*.npz")]
