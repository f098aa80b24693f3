"""Writes a reproduction to disk: one offline page, its pictures, its findings as JSON; each file atomically."""

from __future__ import annotations

from pathlib import Path

from dpsweep.accounting.folders import READABLE, make_folder
from dpsweep.accounting.json_files import write_json
from dpsweep.reports.pages.templates import fill, store, store_picture
from dpsweep.reports.reproduction.finding import Reproduction

FILE = "index.html"


def write(reproduction: Reproduction, folder: Path) -> Path:
    """Writes the page, its pictures and findings, replaces older ones, and returns the page's path."""
    make_folder(folder, READABLE)
    for drawing in reproduction.drawings:
        store_picture(drawing, folder)
    findings = [finding.to_json() for finding in reproduction.findings]
    content = {"title": reproduction.title, "source": reproduction.source, "findings": findings}
    write_json(folder / "findings.json", content)
    store(folder / FILE, render(reproduction).encode())
    return folder / FILE


def render(reproduction: Reproduction) -> str:
    """The page as one HTML document that loads files from its own folder only."""
    return fill("reproduction.html.j2", page=reproduction)
