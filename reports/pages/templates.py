"""Rendering of templates, and atomic writing of files."""

from __future__ import annotations

import html
import os
from pathlib import Path

import jinja2
from markupsafe import Markup

from dpsweep.accounting.printing import escape_invisible_except_line_breaks
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.page_figures import inline_svg

TEMPLATES = Path(__file__).parents[1] / "templates"


def fill_template(template: str, **values: object) -> str:
    """The template filled with these values, escaped for HTML; `Markup` stays unescaped.

    Control and bidirectional characters of values are visible escapes, in Markdown too. Values of a Python template are
    code already and stay as they are. Raises `LookupError` if a value is missing.
    """
    form = Path(template).with_suffix("").suffix
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=form == ".html",
        finalize={".html": _make_control_characters_visible, ".md": _escape_html_in_markdown}.get(form),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=form == ".md",
    )
    environment.filters["inline"] = inline_svg
    try:
        return environment.get_template(template).render(values)
    except jinja2.UndefinedError as cause:
        raise LookupError(f"Expected all values of {template}: {cause}") from cause


def write_file_in_one_rename(path: Path, content: bytes) -> None:
    """Writes a file in one rename."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)  # the file is created again, so an existing link is never followed
    partial.write_bytes(content)
    partial.replace(path)


def write_picture_files(picture: Drawing, folder: Path, pdf: bytes = b"") -> None:
    """Writes a picture's files, each in one rename; of one that failed no older file stays."""
    if picture.failure:
        for suffix in ("png", "svg", "pdf"):
            (folder / f"{picture.name}.{suffix}").unlink(missing_ok=True)
        return
    write_file_in_one_rename(folder / f"{picture.name}.png", picture.png)
    write_file_in_one_rename(folder / f"{picture.name}.svg", picture.svg.encode())
    if pdf:
        write_file_in_one_rename(folder / f"{picture.name}.pdf", pdf)


def _escape_html_in_markdown(value: object) -> str:
    """Text for Markdown: `&`, `<` and `>` are escaped, quotes are not."""
    return value if isinstance(value, Markup) else html.escape(escape_invisible_except_line_breaks(value), quote=False)


def _make_control_characters_visible(value: object) -> object:
    """Text for HTML, which is escaped after this, with control and bidirectional characters as visible escapes."""
    return (
        escape_invisible_except_line_breaks(value)
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )
