"""Features of images by a formula: wavelet scattering coefficients, for which no data are needed.

An image's coefficients are means over patches: of the image, of the magnitudes of its wavelet coefficients, and of the
magnitudes of those of these magnitudes. They keep its contours and change little when it moves by some pixels. Every
number here is a formula or a declared constant, and an image is normalized by itself alone, so nothing is charged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpsweep.accounting.codec import positive, positive_int
from dpsweep.trainers.features.interface import InputForm

if TYPE_CHECKING:
    from torch import Tensor, nn

ANGLES = 8
STRIDE = 4
"""Two octaves: the patches' distance, and the reflected pixels at each side."""

CHANNELS = 1 + 2 * ANGLES + ANGLES * ANGLES
"""Of each colour: the image, a wavelet of either scale, and a fine one followed by a coarse one."""


@dataclass(frozen=True, kw_only=True)
class Scattering:
    """Scattering coefficients of order 2 by Morlet wavelets of 2 scales and 8 angles, 81 channels of each colour.

    Images [n, colours, height, width] in the range that the data set declares are scaled to [0, 1]. The channels, whose
    size is a quarter of the image's, are divided into `groups`, and each record's groups have mean 0 and variance 1.
    Planning fills in `size`.
    Source: Oyallon and Mallat, Deep Roto-Translation Scattering for Object Classification, CVPR 2015; Tramer and Boneh,
    Differentially Private Learning Needs Better Features, ICLR 2021; the filters are those of Andreux et al., Kymatio,
    JMLR 2020, which drops every second pixel of coarse magnitudes.
    """

    groups: int
    norm: float
    size: int | None = None
    weights: ClassVar[None] = None
    trained_on: ClassVar[None] = None
    fallback: ClassVar[str] = "Without it: features=none."
    """What runs without the extractor."""

    def __post_init__(self) -> None:
        positive_int("features.groups", self.groups)
        positive("features.norm", self.norm)

    def settings_from_shape(self, shape: tuple[int, ...]) -> Mapping[str, object]:
        """The number of coefficients."""
        return {"size": CHANNELS * math.prod(shape) // STRIDE**2}

    def check(self, form: InputForm) -> None:
        """Refuse inputs other than images of a size that patches divide."""
        if form.raw_record_kind != "array" or len(form.shape) != 3 or any(n % STRIDE or n < 8 for n in form.shape[1:]):
            raise ValueError(
                f"Expected dataset.shape={list(form.shape)} of images [colours, height, width] with "
                f"features=scattering, height and width multiples of {STRIDE} from 8."
            )
        if CHANNELS * form.shape[0] % self.groups:
            raise ValueError(f"Expected features.groups={self.groups} to divide {CHANNELS * form.shape[0]} channels.")
        if self.size != (size := self.settings_from_shape(form.shape)["size"]):
            raise ValueError(f"Expected features.size={self.size} == {size}, or null.")

    def locate(self) -> None:
        """Find nothing: there are no weights."""

    def module(self, form: InputForm) -> nn.Module:
        """The transform."""
        import torch

        from dpsweep.trainers.features.scaled_rows import ScaledRows

        height, width = (pixels + 2 * STRIDE for pixels in form.shape[1:])
        low, high = form.input_range
        constants = _constant_tensors(
            fine=morlet_wavelets(height, width, scale=0),
            coarse=morlet_wavelets(height, width, scale=1),
            down=patch_means(height),
            across=patch_means(width).T,
        )

        def scatter(images: Tensor) -> Tensor:
            """Of images [n, colours, height, width] the normalized coefficients [n, size]."""
            fine, coarse = constants["fine"], constants["coarse"]
            pixels = torch.nn.functional.pad((images - low) / (high - low), (STRIDE,) * 4, mode="reflect")
            first = wavelet_magnitudes(pixels, torch.cat([fine, coarse]))
            second = wavelet_magnitudes(first[:, :, :ANGLES], coarse).flatten(2, 3)
            channels = torch.cat([pixels[:, :, None], first, second], dim=2)
            groups = (constants["down"] @ channels @ constants["across"]).reshape(len(images), self.groups, -1)
            return torch.nn.functional.layer_norm(groups, groups.shape[2:]).flatten(1)

        return ScaledRows(constants, self.norm, scatter)


def _constant_tensors(**tensors: Tensor) -> nn.ParameterDict:
    """Constant tensors by name, as a module that moves them to a device."""
    from torch import nn

    return nn.ParameterDict({name: nn.Parameter(value, requires_grad=False) for name, value in tensors.items()})


def wavelet_magnitudes(images: Tensor, wavelets: Tensor) -> Tensor:
    """|images * wavelet|, [..., k, height, width], of images [..., height, width] and the spectra of k wavelets."""
    from torch.fft import fft2, ifft2

    magnitudes: Tensor = ifft2(fft2(images)[..., None, :, :] * wavelets).abs()
    return magnitudes


def morlet_wavelets(height: int, width: int, *, scale: int) -> Tensor:
    """The spectra [8, height, width], real, of Morlet wavelets g (exp(i k u) - b) at 8 angles, on a torus.

    u is the coordinate along the angle, k = 3/4 pi / 2^scale, and g a Gaussian with the standard deviation 0.8 2^scale
    along the angle, and twice that across; b makes the sum of a wavelet zero.
    """
    import torch

    std, frequency, slant = 0.8 * 2**scale, 0.75 * math.pi / 2**scale, 4 / ANGLES
    rows, columns = (torch.arange(-2 * n, 3 * n, dtype=torch.float64) for n in (height, width))
    spectra = []
    for angle in (math.pi * (ANGLES // 2 - 1 - place) / ANGLES for place in range(ANGLES)):
        along = rows[:, None] * math.cos(angle) + columns * math.sin(angle)
        across = columns * math.cos(angle) - rows[:, None] * math.sin(angle)
        gauss = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * std**2)) * slant / (2 * math.pi * std**2)
        wave = gauss * torch.exp(1j * frequency * along)
        wave, gauss = (values.reshape(5, height, 5, width).sum((0, 2)) for values in (wave, gauss))
        spectra.append(torch.fft.fft2(wave - wave.sum() / gauss.sum() * gauss).real)
    return torch.stack(spectra).float()


def patch_means(pixels: int) -> Tensor:
    """Means over patches, as a matrix [patches, pixels] of Gaussians with standard deviation 1.6, on a circle.

    The patches at both ends, which see reflected pixels above all, are left out.
    """
    import torch

    centers = torch.arange(STRIDE, pixels - STRIDE, STRIDE, dtype=torch.float64)[:, None]
    distances = (torch.arange(pixels) - centers + pixels // 2) % pixels - pixels // 2
    gauss = torch.exp(-(distances**2) / (2 * 1.6**2))
    return (gauss / gauss.sum(dim=1, keepdim=True)).float()
