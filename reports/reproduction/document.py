"""A reproduction on the disk: one offline page, its pictures, its findings as JSON; each file in one rename."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from dpsweep.accounting.json_files import write_json
from dpsweep.reports.pages.templates import fill, store
from dpsweep.reports.reproduction.finding import Reproduction

FILE = "index.html"


def write(reproduction: Reproduction, folder: Path) -> Path:
    """Writes the page and what it shows, over an older one, and returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in reproduction.drawings:
        store(folder / f"{drawing.name}.png", drawing.png)
        store(folder / f"{drawing.name}.svg", drawing.svg.encode())
    findings = [{**asdict(finding), "verdict": finding.verdict} for finding in reproduction.findings]
    said = {"title": reproduction.title, "source": reproduction.source, "findings": findings}
    write_json(folder / "findings.json", said)
    store(folder / FILE, render(reproduction).encode())
    return folder / FILE


def render(reproduction: Reproduction) -> str:
    """The page as one HTML document that asks nobody but its own folder for anything."""
    return fill("reproduction.html.j2", page=reproduction)
