from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dpsweep.trainers.data.records import FeatureRows, Records, Scaling


def images() -> Records:
    return Records(
        features=torch.arange(0, 240, 10, dtype=torch.uint8).reshape(6, 1, 2, 2),
        labels=torch.arange(6),
        scaling=Scaling(scale=255.0, mean=0.5, std=0.5),
    )


def test_inputs_are_scaled_by_the_public_constants_alone() -> None:
    inputs = images().inputs(np.array([5, 0]), "cpu")
    assert inputs.dtype == torch.float32
    expected = (np.array([[200, 210, 220, 230], [0, 10, 20, 30]]) / 255 - 0.5) / 0.5
    np.testing.assert_allclose(inputs.reshape(2, 4).numpy(), expected, atol=1e-6)


def test_an_input_does_not_depend_on_the_other_records() -> None:
    alone = images().select(np.array([2])).inputs(slice(None), "cpu")
    assert torch.equal(alone, images().inputs(slice(2, 3), "cpu"))


def test_the_empty_batch_has_the_shape_of_a_batch() -> None:
    nobody = np.array([], dtype=np.int64)
    assert images().inputs(nobody, "cpu").shape == (0, 1, 2, 2)
    assert images().targets(nobody, "cpu").shape == (0,)
    assert len(images().select(nobody)) == 0


@pytest.mark.parametrize(
    "index",
    [
        np.array([1, 3]),
        slice(1, 5, 2),
        np.array([False, True, False, True, False, False]),
        np.arange(6)[1:5:2],
    ],
)
def test_positions_masks_and_slices_agree(index: np.ndarray | slice) -> None:
    assert images().targets(index, "cpu").tolist() == [1, 3]
    chosen = images().select(index)
    assert chosen.labels.tolist() == [1, 3]
    assert torch.equal(chosen.inputs(slice(None), "cpu"), images().inputs(index, "cpu"))


def test_a_selection_of_a_selection_copies_no_features() -> None:
    records = images()
    chosen = records.select(np.array([5, 3, 1, 0])).select(np.array([True, False, True, False])).select(slice(None))
    assert isinstance(chosen.features, FeatureRows)
    assert chosen.features.array is records.features
    assert chosen.input_shape == (1, 2, 2)
    assert torch.equal(chosen.stored_features(), records.stored_features(np.array([5, 1])))
    contents = [*records.bytes_of_each_record()]
    assert [*chosen.bytes_of_each_record()] == [contents[5], contents[1]]
    alone = replace(chosen, features=chosen.stored_features())
    assert torch.equal(alone.inputs(slice(None), "cpu"), chosen.inputs(slice(None), "cpu"))
    assert chosen.to("cpu").features is chosen.features
    assert chosen.to("meta").features.shape == (2, 1, 2, 2)


def test_reading_inputs_leaves_the_records_as_they_are() -> None:
    records = Records(features=torch.ones(3, 2), labels=torch.zeros(3, dtype=torch.int64), scaling=Scaling(scale=2.0))
    records.inputs(slice(None), "cpu").zero_()
    assert torch.equal(records.features, torch.ones(3, 2))


def test_moved_records_are_the_same() -> None:
    moved = images().to("meta")
    assert moved.features.shape == images().features.shape
    assert moved.scaling == images().scaling


@pytest.mark.parametrize(
    ("features", "labels", "sentence"),
    [
        (
            torch.zeros(2, 3, dtype=torch.float64),
            torch.zeros(2, dtype=torch.int64),
            r"Expected features\.dtype=",
        ),
        (torch.zeros(2, 3), torch.zeros(2, dtype=torch.int32), r"Expected labels\.dtype="),
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), r"Expected labels\.shape=\(3,\) == \(2,\)"),
    ],
)
def test_records_of_another_kind_are_refused(features: torch.Tensor, labels: torch.Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Records(features=features, labels=labels)


@pytest.mark.parametrize("wrong", [{"scale": 0.0}, {"std": -1.0}, {"std": float("inf")}, {"mean": float("nan")}])
def test_scaling_that_is_no_map_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"Expected {next(iter(wrong))}="):
        Scaling(**wrong)
