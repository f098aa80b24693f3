"""Rendering of templates, and atomic writing of files."""

from __future__ import annotations

import html
import os
from pathlib import Path

import jinja2
from markupsafe import Markup

from dpsweep.reports.figures.svg import fragment

TEMPLATES = Path(__file__).parents[1] / "templates"


def fill(template: str, **values: object) -> str:
    """The template filled with these values, escaped for HTML; `Markup` stays unescaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=not template.endswith(".md.j2"),
        finalize=_plain if template.endswith(".md.j2") else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=template.endswith(".md.j2"),
    )
    environment.filters["inline"] = fragment
    return environment.get_template(template).render(values)


def store(path: Path, content: bytes) -> None:
    """Writes a file in one rename."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)  # the file is created again, so an existing link is never followed
    partial.write_bytes(content)
    partial.replace(path)


def _plain(value: object) -> str:
    """Text for Markdown: `&`, `<` and `>` are escaped, quotes are not."""
    return value if isinstance(value, Markup) else html.escape(str(value), quote=False)
