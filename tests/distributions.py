"""Distributions of others as pip installs them: modules, YAML files, and a folder of metadata with entry points."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

GROUPS = ("loggers", "disclosure_formats", "feature_extractors", "audits", "configurations")


def write_distribution(
    folder: Path, name: str, files: Mapping[str, str | bytes], entries: Mapping[str, Mapping[str, str]]
) -> None:
    """Writes a distribution into a folder as into `site-packages`; `entries` are by group, without `dpsweep.`."""
    metadata = folder / f"{name}-1.0.dist-info"
    text = "\n".join(
        f"[dpsweep.{group}]\n" + "".join(f"{word} = {value}\n" for word, value in words.items())
        for group, words in entries.items()
    )
    written = {
        **files,
        f"{metadata.name}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n",
        f"{metadata.name}/entry_points.txt": text,
    }
    for place, content in written.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content if isinstance(content, bytes) else content.encode())


def installed(environment: Mapping[str, str], *folders: Path) -> dict[str, str]:
    """The environment of a program for which the distributions in these folders are installed."""
    others = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
    return {**environment, "PYTHONPATH": os.pathsep.join([*map(str, folders), *others])}
