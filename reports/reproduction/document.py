"""A reproduction on the disk: one offline page, its pictures, its findings as JSON; each file in one rename."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import jinja2

from accounting.plan import write_json
from reports.reproduction.finding import Reproduction

FILE = "index.html"
TEMPLATES = Path(__file__).parents[1] / "templates"


def write(reproduction: Reproduction, folder: Path) -> Path:
    """Writes the page and what it shows, over an older one, and returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in reproduction.drawings:
        _store(folder / f"{drawing.name}.png", drawing.png)
        _store(folder / f"{drawing.name}.svg", drawing.svg.encode())
    findings = [{**asdict(finding), "verdict": finding.verdict} for finding in reproduction.findings]
    write_json(folder / "findings.json", {"source": reproduction.source, "findings": findings})
    _store(folder / FILE, render(reproduction).encode())
    return folder / FILE


def render(reproduction: Reproduction) -> str:
    """The page as one HTML document that asks nobody but its own folder for anything."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("reproduction.html.j2").render(page=reproduction)


def _store(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
