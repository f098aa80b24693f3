"""Features by an encoder of pictures or of texts in Hugging Face's layout, from a folder on disk.

Planning reads the folder's own files, and the plan states what they say: the architecture, the checksum of the weights,
how a picture is resized and scaled, how vectors are pooled, and the data that the model card names. A job builds the
network from the plan. Nothing is downloaded, no code of the folder is run, and weights are read as safetensors alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dpsweep.accounting.codec import positive, positive_int
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.format_defaults import Place
from dpsweep.trainers.data.published_files import PretrainedFolder, require_installed_package
from dpsweep.trainers.features.interface import InputForm, check_extractor_settings
from dpsweep.trainers.features.sentence_encoder import without_common_padding

if TYPE_CHECKING:
    from torch import Tensor, nn

KEY = "features.path"
PREPROCESSOR, POOLING = "preprocessor_config.json", "1_Pooling/config.json"
WIDTHS = ("hidden_size", "dim", "d_model", "n_embd")
"""The names of an encoder's width in `config.json`."""

INTERPOLATIONS = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}
"""The numbers of Pillow's filters that torch has too."""

AUTO = "auto"
SENTENCE_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What becomes of a picture with numbers in [0, 1]: resized, cropped at the middle, (x * scale - mean) / std."""

    resize: tuple[int, int] | None
    interpolation: str
    crop: tuple[int, int] | None
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class HfEncoder:
    """An encoder in the folder `path`: `picture` says how pictures are prepared; None for token numbers.

    `pooling` of vectors is mean, first or last, or auto: the network's own, without a layer of weights named pooler,
    else the first. Planning fills in what is None from the folder.
    """

    path: Place
    norm: float
    pooling: str | None = None
    trained_on: str | None = None
    weights: Place | None = None
    sha256: str | None = None
    architecture: Mapping[str, Any] | None = None
    picture: Mapping[str, Any] | None = None
    tokenizer: str | None = None
    size: int | None = None
    fallback: ClassVar[str] = "Without it: features=none, or, for images, features=scattering."
    """What runs without the extractor."""

    def __post_init__(self) -> None:
        positive("features.norm", self.norm)
        if self.pooling is not None and self.pooling not in (AUTO, *SENTENCE_POOLINGS.values()):
            raise ValueError(f"Expected features.pooling={self.pooling} to be auto, mean, first or last.")

    def settings_from_shape(self, shape: tuple[int, ...]) -> Mapping[str, object]:
        """What the folder says of an encoder for inputs of this shape."""
        require_installed_package("transformers")
        folder = PretrainedFolder(path=self.path, key=KEY)
        if folder.names_code_of_its_own:
            raise BadInput(
                f"Expected {KEY}={self.path} without auto_map in its config.json: no code of a folder is run."
            )
        whole, pictures = folder.architecture_settings, len(shape) == 3
        architecture = whole["vision_config"] if pictures and "vision_config" in whole else whole
        if pictures == ("vocab_size" in architecture):
            kinds = ("texts", "images") if pictures else ("images", "texts")
            raise BadInput(
                f"Expected {KEY}={self.path} to be an encoder of {kinds[1]}, as dataset.shape={list(shape)} needs: "
                f"{architecture['model_type']} reads {kinds[0]}."
            )
        known: dict[str, object] = {
            "architecture": architecture,
            "weights": folder.name,
            "sha256": folder.checksum_of_weights(),
            "size": _width(architecture),
            "trained_on": ", ".join(folder.names_of_training_data) or None,
        }
        if pictures:
            return known | {
                "picture": asdict(picture_preparation(folder.json_file(PREPROCESSOR), shape, self.path)),
                "pooling": AUTO,
            }
        tokenizer = hashlib.sha256(folder.tokenizer_file_bytes()).hexdigest()
        return known | {"tokenizer": tokenizer, "pooling": _pooling_of_sentences(folder)}

    def check(self, form: InputForm) -> None:
        """Refuse inputs of the other kind, texts in another vocabulary, and settings that the folder leaves open."""
        if self.trained_on is None:
            raise ValueError(
                f"Expected features.trained_on to name the public training data: the model card in {self.path} names "
                "none."
            )
        check_extractor_settings(self)  # type: ignore[arg-type]
        if self.size is None:
            raise ValueError(f"Expected features.size, the width of the encoder: config.json in {self.path} has none.")
        positive_int("features.size", self.size)
        if self.picture is not None:
            channels = int((self.architecture or {}).get("num_channels", 3))
            if form.raw_record_kind != "array" or form.shape[0] not in (1, channels):
                raise ValueError(
                    f"Expected dataset.shape={list(form.shape)} of images [1 or {channels}, height, width] with "
                    f"features=hf and {KEY}={self.path}."
                )
        elif form.preprocessing is None or form.raw_record_kind != "tokens":
            raise ValueError(f"Expected a data set of token numbers with an encoder of texts, {KEY}={self.path}.")
        elif form.preprocessing["vocabulary"]["sha256"] != self.tokenizer:
            raise ValueError(
                f"Expected the data set's vocabulary to be the tokenizer in {KEY}={self.path}, as with "
                "dataset.vocabulary.path=${features.path}."
            )

    def locate(self) -> None:
        """Compare the weights with their checksum."""
        require_installed_package("transformers")
        if (digest := PretrainedFolder(path=self.path, key=KEY).checksum_of_weights()) != self.sha256:
            raise ValueError(f"Expected {KEY}={self.path} to have weights with sha256={self.sha256}, got {digest}.")

    def module(self, form: InputForm) -> nn.Module:
        """The encoder with its pooling."""
        import torch

        self.locate()
        with torch.random.fork_rng(devices=[]):  # it draws weights, which are replaced
            return self._encoder_of_texts(form) if self.picture is None else self._encoder_of_pictures(form)

    def _network(self) -> nn.Module:
        from dpsweep.trainers.models.hugging_face import encoder_with_weights_of_folder

        return encoder_with_weights_of_folder(self.architecture or {}, PretrainedFolder(path=self.path).expanded_path)

    def _encoder_of_texts(self, form: InputForm) -> nn.Module:
        from torch import nn

        from dpsweep.trainers.features.scaled_rows import ScaledRows
        from dpsweep.trainers.models.hugging_face import build_random_text_classifier

        padding = int((form.preprocessing or {})["padding"])
        settings = {"architecture": self.architecture, "padding": padding, "pooling": self.pooling}
        model = build_random_text_classifier(form.shape, 1, **settings)  # type: ignore[arg-type]
        model.encoder = self._network()
        model.head = nn.Identity()  # type: ignore[assignment]

        def encode_without_padding(tokens: Tensor) -> Tensor:
            rows: Tensor = model(without_common_padding(tokens, padding))
            return rows

        return ScaledRows(model, self.norm, encode_without_padding)

    def _encoder_of_pictures(self, form: InputForm) -> nn.Module:
        import torch

        from dpsweep.trainers.features.scaled_rows import ScaledRows
        from dpsweep.trainers.models.hugging_face import POOLINGS

        network = self._network()
        low, high = form.input_range
        picture = Picture(**dict(self.picture or {}))

        def encode(images: Tensor) -> Tensor:
            """Of images [n, colours, height, width] a vector each."""
            outputs = network(pixel_values=prepare_pictures((images - low) / (high - low), picture))
            if self.pooling == AUTO and outputs.get("pooler_output") is not None:
                pooled: Tensor = outputs["pooler_output"].flatten(1)
                return pooled
            vectors: Tensor = outputs["last_hidden_state"]
            vectors = vectors.flatten(2).transpose(1, 2) if vectors.ndim == 4 else vectors
            everywhere = torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device)
            return POOLINGS["first" if self.pooling == AUTO else str(self.pooling)](vectors, everywhere)

        return ScaledRows(network, self.norm, encode)


def picture_preparation(declared: Mapping[str, Any], shape: tuple[int, ...], path: str) -> Picture:
    """What `preprocessor_config.json` says of pictures of this shape; raises `BadInput` for what torch lacks."""
    resize = _target_size(declared.get("size"), shape[1:]) if declared.get("do_resize", True) else None
    crop = _target_size(declared.get("crop_size"), None) if declared.get("do_center_crop") else None
    interpolation = INTERPOLATIONS.get(declared.get("resample", 2))
    before = resize or shape[1:]
    if interpolation is None or (crop is not None and (crop[0] > before[0] or crop[1] > before[1])):
        raise BadInput(
            f"Expected {PREPROCESSOR} in {path} to resize by Pillow's filter 0, 2 or 3, and to crop no more than that "
            f"leaves, got filter {declared.get('resample')} and a crop of {crop} from {before}."
        )
    normalizes = declared.get("do_normalize", True)
    try:
        return Picture(
            resize=resize,
            interpolation=interpolation,
            crop=crop,
            scale=255.0 * float(declared.get("rescale_factor", 1 / 255)) if declared.get("do_rescale", True) else 255.0,
            mean=tuple(map(float, declared["image_mean"])) if normalizes else (0.0,),
            std=tuple(map(float, declared["image_std"])) if normalizes else (1.0,),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise BadInput(f"Expected {PREPROCESSOR} in {path} to have image_mean and image_std: {cause!r}.") from cause


def prepare_pictures(pictures: Tensor, declared: Picture) -> Tensor:
    """Pictures [n, colours, height, width] with numbers in [0, 1], as an encoder reads them; grey ones get its colours.

    Pillow, by which transformers may resize, rounds to whole numbers of 0 to 255; this does not.
    """
    import torch
    from torch.nn.functional import interpolate

    if declared.resize is not None and tuple(pictures.shape[2:]) != tuple(declared.resize):
        smooth = {} if declared.interpolation == "nearest-exact" else {"antialias": True}
        pictures = interpolate(pictures, tuple(declared.resize), mode=declared.interpolation, **smooth).clamp(0, 1)
    if declared.crop is not None:
        top, left = ((there - kept) // 2 for there, kept in zip(pictures.shape[2:], declared.crop, strict=True))
        pictures = pictures[:, :, top : top + declared.crop[0], left : left + declared.crop[1]]
    mean, std = (
        torch.tensor(values, dtype=pictures.dtype, device=pictures.device)[:, None, None]
        for values in (declared.mean, declared.std)
    )
    return (pictures.expand(-1, max(len(declared.mean), pictures.shape[1]), -1, -1) * declared.scale - mean) / std


def _target_size(declared: Any, shape: tuple[int, ...] | None) -> tuple[int, int] | None:
    """A size as transformers states it: a number, height and width, or the shorter side of a picture of this shape."""
    if isinstance(declared, int):
        declared = {"height": declared, "width": declared}
    match declared:
        case {"height": int(height), "width": int(width)}:
            return height, width
        case {"shortest_edge": int(shorter)} if shape is not None:
            height, width = shape
            scale = shorter / min(height, width)
            return (shorter, int(scale * width)) if height <= width else (int(scale * height), shorter)
    raise BadInput(f"Expected a size of {PREPROCESSOR} to be height and width, or a shortest edge, got {declared}.")


def _width(architecture: Mapping[str, Any]) -> int | None:
    sizes = architecture.get("hidden_sizes")
    known = (architecture[name] for name in WIDTHS if isinstance(architecture.get(name), int))
    return int(sizes[-1]) if isinstance(sizes, list) and sizes else next(known, None)


def _pooling_of_sentences(folder: PretrainedFolder) -> str:
    """The pooling that a sentence encoder's folder states, else the mean."""
    if not (folder.expanded_path / POOLING).is_file():
        return "mean"
    modes = [name for name, used in folder.json_file(POOLING).items() if name.startswith("pooling_mode") and used]
    if len(modes) != 1 or modes[0] not in SENTENCE_POOLINGS:
        raise BadInput(f"Expected {POOLING} in {folder.path} to choose mean, cls or last token, got {modes}.")
    return SENTENCE_POOLINGS[modes[0]]
