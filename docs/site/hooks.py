"""Makes of docs/ a site: its contents from index.md, pages from outside docs/ that it links to, pictures of rooms.

The pages are written for a repository's own browser, with links between files. Here a page's place on the site is its
path in the repository, less `docs/`; files outside docs/ that a page links to come along, and links are rewritten.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import pymdownx.slugs
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from room_drawing import drawing

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\]\((?P<target>[^)#:\s]+)(?P<anchor>#[\w-]+)?\)")
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^- \[[^\]]+\]\((?P<page>[\w./-]+)\)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Contents as in index.md, anchors as a repository's browser makes them, and rooms drawn without a script."""
    config.nav = contents((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    slugs = pymdownx.slugs.slugify(case="lower")
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugs
    fence = {"name": "mermaid", "class": "rooms", "format": _drawn}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def contents(index: str) -> list[Any]:
    """The sections of the index, and the pages of each."""
    sections = (section.partition("\n") for section in index.split("\n## ")[1:])
    return [{"Documentation": "index.md"}, *({title: ENTRY.findall(pages)} for title, _, pages in sections)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what pages link to and what lies outside docs/."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in links((ROOT / page).read_text(encoding="utf-8"), page):
            if target in seen or not (ROOT / target).is_file():
                continue
            seen.add(target)
            if not target.startswith("docs/"):
                files.append(File.generated(config, target, abs_src_path=str(ROOT / target)))
                waiting += [target] if target.endswith(".md") else []
    return files


def links(text: str, page: str) -> list[str]:
    """The files that a page links to, as paths in the repository."""
    return [posixpath.normpath(posixpath.join(posixpath.dirname(page), link["target"])) for link in LINK.finditer(text)]


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrites links between files of the repository as links between places of the site.

    Pages from outside docs/, such as the history of changes, are not searched.
    """
    source = page.file.src_uri
    inside = (ROOT / "docs" / source).is_file()
    path = f"docs/{source}" if inside else source
    page.meta["search"] = {"exclude": not inside}
    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else rewritten(part, path, source) for part in parts)


def rewritten(text: str, path: str, source: str) -> str:
    """The text of the page that lies at `path` in the repository and at `source` on the site."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["target"])).removeprefix("docs/")
        place = posixpath.relpath(target, posixpath.dirname(source) or ".")
        return f"]({place}{match['anchor'] or ''})"

    return LINK.sub(link, text)


def _drawn(source: str, *_: Any, **__: Any) -> str:
    return drawing(source)
