"""Scattering coefficients: Kymatio's, of each image alone, and no number of the data in them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import build_from_stored_form
from dpsweep.sweeper.planning.base_weights import config_with_base_weight_facts
from dpsweep.trainers.features.interface import InputForm
from dpsweep.trainers.features.scattering import ANGLES, CHANNELS, Scattering, morlet_wavelets, patch_means

CONF = Path(__file__).parents[3] / "conf" / "features" / "scattering.yaml"
PIXELS = {"kind": "array", "bounds": None, "scale": 255.0, "mean": 0.0, "std": 1.0}


def built(shape: tuple[int, ...], **changes: Any) -> Scattering:
    config: Any = OmegaConf.to_container(OmegaConf.load(CONF))
    parts = {"model": {}, "dataset": {"shape": shape}, "features": config | changes}
    extractor: Scattering = build_from_stored_form(config_with_base_weight_facts(parts)["features"], "features")
    return extractor


def coefficients(images: Tensor, *, groups: int = 1, preprocessing: dict[str, Any] = PIXELS) -> Tensor:
    """Normalized coefficients [n, channels, height / 4, width / 4], of norm 4."""
    colours, height, width = images.shape[1:]
    form = InputForm(shape=(colours, height, width), preprocessing=preprocessing)
    extractor = built(form.shape, groups=groups)
    extractor.check(form)
    rows: Tensor = extractor.module(form)(images)
    return rows.reshape(len(images), colours * CHANNELS, height // 4, width // 4)


def waves(height: int = 28, width: int = 28) -> Tensor:
    """An image with edges and waves, numbers in [0, 1]."""
    rows, columns = torch.arange(height, dtype=torch.float64)[:, None], torch.arange(width, dtype=torch.float64)
    image = ((0.9 * rows + 0.4 * columns).sin() + (columns > width / 3) + 1) / 3
    return image.float().reshape(1, 1, height, width)


KYMATIO = {
    **{0: 0.469815, 1: 0.015858, 4: 0.034993, 8: 0.016329},
    **{9: 0.015004, 13: -0.006289, 17: -0.013391, 40: -0.015617, 80: 0.00119},
}
"""Channels 0, 1, 4, 8, 9, 13, 17, 40 and 80 at the patch [3, 2] of `waves()`, minus their mean, by Kymatio 0.3.0."""


def test_coefficients_are_kymatios() -> None:
    found = coefficients(waves())[0, list(KYMATIO), 3, 2]
    expected = torch.tensor(list(KYMATIO.values()))
    differences = (found - found[0] / expected[0] * expected).abs()
    fine = torch.tensor([channel <= ANGLES for channel in KYMATIO])
    assert differences[fine].max() < 5e-6
    assert differences.max() < 4e-4, "of coarse magnitudes Kymatio drops every second pixel"


def test_wavelets_see_no_constant_and_patch_means_keep_it() -> None:
    for scale in (0, 1):
        spectra = morlet_wavelets(36, 40, scale=scale)
        assert spectra.shape == (ANGLES, 36, 40)
        assert spectra[:, 0, 0].abs().max() < 1e-6
        assert 0.8 < float(spectra.max()) < 1.1
    assert torch.allclose(patch_means(36).sum(dim=1), torch.ones(7))


def test_wavelets_at_mirrored_angles_are_mirrored() -> None:
    wavelets = morlet_wavelets(36, 36, scale=1)
    assert torch.allclose(wavelets[:3].transpose(1, 2), wavelets[:3].flip(0), atol=1e-6)


def test_features_do_not_see_brightness_scale_or_the_declared_range() -> None:
    image = waves()
    plain = coefficients(image)
    assert plain.flatten(1).norm(dim=1).item() == pytest.approx(4.0, abs=1e-5)
    bytes_range = {**PIXELS, "mean": 0.5, "std": 0.25}
    assert torch.allclose(plain, coefficients((image - 0.5) / 0.25, preprocessing=bytes_range), atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 24), (1, 8, 8)])
def test_a_records_features_are_its_own_and_groups_have_mean_zero(shape: tuple[int, ...]) -> None:
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    found = coefficients(images, groups=27)
    alone = torch.cat([coefficients(image[None], groups=27) for image in images])
    assert torch.allclose(found, alone, atol=1e-5)
    assert found.reshape(3, 27, -1).mean(dim=2).abs().max() < 1e-5
    assert found[0].numel() == CHANNELS * math.prod(shape) // 16 == built(shape).size


def test_an_image_of_one_colour_gives_zeros_and_no_error() -> None:
    found = coefficients(torch.full((1, 1, 8, 8), 0.5), groups=81)
    assert found.isfinite().all()


def test_moving_an_image_by_a_pixel_changes_its_coefficients_less_than_the_image() -> None:
    image = torch.nn.functional.pad(waves(20, 20), (4, 4, 4, 4))
    moved = image.roll(1, 3)
    before, after = coefficients(image), coefficients(moved)
    assert (before - after).norm() / before.norm() < 0.5 * (image - moved).norm() / image.norm()


@pytest.mark.parametrize(
    ("shape", "changes", "preprocessing", "sentence"),
    [
        ((784,), {}, PIXELS, "of images \\[colours, height, width\\]"),
        ((1, 30, 28), {}, PIXELS, "multiples of 4"),
        ((1, 4, 8), {}, PIXELS, "from 8"),
        ((1, 8, 8), {}, {"kind": "tokens"}, "of images"),
        ((1, 8, 8), {"groups": 2}, PIXELS, "features.groups=2 to divide 81 channels"),
        ((1, 8, 8), {"size": 7}, PIXELS, "features.size=7 == 324, or null"),
    ],
)
def test_inputs_that_it_cannot_read_are_refused(
    shape: tuple[int, ...], changes: dict[str, Any], preprocessing: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        built(shape, **changes).check(InputForm(shape=shape, preprocessing=preprocessing))


@pytest.mark.parametrize(
    ("changes", "sentence"), [({"groups": 0}, "features.groups=0"), ({"norm": 0.0}, "features.norm=0.0 > 0")]
)
def test_wrong_settings_are_refused_while_planning(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        built((1, 8, 8), **changes)
