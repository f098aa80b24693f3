"""A trained model as a file."""

from __future__ import annotations

from pathlib import Path

import torch

from dpsweep.accounting.records.trial_result import MODEL_FILE
from dpsweep.trainers.models.convolutional import cnn
from dpsweep.trainers.models.weights import build_model_with_seeded_weights, load_weights_into_model, save_model

SHAPE, CLASSES = (1, 16, 16), 3


def made(seed: int) -> torch.nn.Module:
    return build_model_with_seeded_weights(lambda: cnn(SHAPE, CLASSES), seed)


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    model, other = made(1), made(2)
    save_model(model, tmp_path)
    inputs = torch.ones(4, *SHAPE)
    assert not torch.equal(other(inputs), model(inputs))
    assert torch.equal(load_weights_into_model(other, tmp_path)(inputs), model(inputs))


def test_the_file_tells_the_weights_and_nothing_else(tmp_path: Path) -> None:
    """Neither when nor where, nor in which process: equal weights are equal bytes, and nobody else may read them."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_model(made(1), tmp_path / name)
    one, two = (tmp_path / name / MODEL_FILE for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_mode & 0o077 == 0
    assert [path.name for path in one.parent.iterdir()] == [MODEL_FILE]
