"""The documentation's site: every page and link is there, and nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("material", reason="needs pip install 'dpsweep[docs]'")

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if ".template" not in path.suffixes)
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""The attributes whose address a browser loads by itself."""


class Site(HTMLParser):
    """What a page loads, links to, and can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(value for key in ("id", "name") if (value := given.get(key)))
        if (loaded := given.get(LOADED.get(tag, ""))) and given.get("rel") != "canonical":
            self.loads.append(loaded)
        if tag == "a" and (target := given.get("href")):
            self.links.append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site_and_every_section_of_the_index_is_in_its_contents(site: Path) -> None:
    assert {f"{name}.html" for name in PAGES} <= {path.name for path in site.iterdir()}
    index = (ROOT / "docs" / "index.md").read_text()
    contents = (site / "index.html").read_text().partition('<nav class="md-nav md-nav--primary"')[2]
    places = [contents.find(f'href="{name}.html"') for name in re.findall(r"^- \[.+\]\(([\w-]+)\.md", index, re.M)]
    assert -1 not in places
    assert places == sorted(places)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert [name for name in Site(path.read_text()).loads if re.match(r"(\w+:)?//", name)] == [], path.name
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//", path.read_text()) == [], path.name


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
def test_a_page_that_is_opened_from_a_folder_has_a_search_and_at_every_width_a_menu(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install 'dpsweep[dev]'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for width, button in ((400, "label.md-header__button[for=__search]"), (1400, ".md-search__input")):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.goto((site / "tutorial.html").as_uri())
            page.click(button)
            page.locator(".md-search__input:focus").wait_for()
            page.keyboard.type("optuna", delay=20)
            page.locator(".md-search-result__item a").first.wait_for()
            targets = page.locator(".md-search-result__item a").evaluate_all("all => all.map(one => one.href)")
            assert targets
            assert not [one for one in targets if "CHANGELOG" in one or "RESULTS" in one]
            page.keyboard.press("Escape")
            if width == 400:
                page.click("label.md-header__button[for=__drawer]")
            page.locator(".md-nav--primary a[href='how-to.html']").wait_for()
        browser.close()


def test_every_link_leads_to_a_file_and_to_an_anchor(site: Path) -> None:
    made = {path: Site(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    count = 0
    for path, page in made.items():
        for link in (*page.links, *page.loads):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = unquote(link).partition("#")
            place = (path.parent / target).resolve() if target else path
            place = place / "index.html" if place.is_dir() else place
            assert place.is_file(), f"{path.name}: {link}"
            assert not anchor or place.suffix != ".html" or anchor in made[place].anchors, f"{path.name}: {link}"
            count += 1
    assert count > 10 * len(PAGES)


def test_the_picture_of_the_rooms_has_every_room_and_arrow(site: Path) -> None:
    source = (ROOT / "docs" / "architecture.md").read_text().partition("```mermaid\n")[2].partition("```")[0]
    picture = (site / "architecture.html").read_text().partition('<svg role="img"')[2].partition("</svg>")[0]
    assert sorted(re.findall(r'<text class="room"[^>]*>([^<]+)<', picture)) == sorted(re.findall(r"\[(.+)\]", source))
    assert picture.count("<path ") == source.count(" --> ") > 0


def test_lists_and_tables_are_what_the_repositorys_browser_makes_of_them(site: Path) -> None:
    """The two dialects differ in lists without an empty line before them, and in bars within a table's code."""
    for path in site.rglob("*.html"):
        text = path.read_text()
        assert re.findall(r"<p>(?:[^<]*\n)?[-*] .*", text) == [], path.name
        assert re.findall(r"<p>\|.*", text) == [], path.name
        assert re.findall(r"<code>[^<]*\\\|[^<]*</code>", text) == [], path.name
