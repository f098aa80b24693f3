"""All forms in which a release can be handed on, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dpsweep.reports.disclosure.deployments_registry import RegistryEntry
from dpsweep.reports.disclosure.disclosure_record import DisclosureRecord
from dpsweep.reports.disclosure.format_names import FormatName, named
from dpsweep.reports.disclosure.hugging_face_card import HuggingFaceCard
from dpsweep.reports.disclosure.model_materials import ModelMaterials
from dpsweep.reports.pages.released_package import ReleaseFormat

FORMATS: Mapping[FormatName, ReleaseFormat] = {
    FormatName.REGISTRY: RegistryEntry(),
    FormatName.TRE: DisclosureRecord(),
    FormatName.HF: HuggingFaceCard(),
    FormatName.CYCLONEDX: ModelMaterials(),
}


def formats_of(names: Iterable[str]) -> tuple[ReleaseFormat, ...]:
    """The forms with these names; raises `BadInput` for an unknown one."""
    return tuple(FORMATS[name] for name in named(names))


def written_in(release: Path) -> tuple[ReleaseFormat, ...]:
    """The forms whose documents lie in a release."""
    return tuple(one for one in FORMATS.values() if (release / one.file).is_file())
