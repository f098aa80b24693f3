"""The page in a real browser: it asks nobody for anything, and serves mouse, keyboard, phone, night and paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsweep.reports.pages.comparison import write_comparison

playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install 'dpsweep[dev]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")

CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = part => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const node of document.querySelectorAll("body *:not(svg *)")) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.offsetParent || node.closest(".hidden")) continue;
    const [one, other] = [parse(getComputedStyle(node).color), behind(node)].map(luminance);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) weak.push([node.tagName, node.className, ratio, node.textContent].join(" "));
  }
  return weak;
}"""
"""Texts that do not stand out from what is behind them by 4.5 to 1 (WCAG 2.1, AA)."""

SAID = """() => [...document.querySelectorAll(".cells span")].filter(one => one.clientWidth > 2)
  .map(one => one.innerText)"""
"""The texts of cells that are shown."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def page(browser: Any, troubled: Any) -> Iterator[Any]:
    """The curator's page; whatever it logs or asks for besides itself fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened, complaints = context.new_page(), []
    address = (troubled.folder / "curator" / "report.html").as_uri()
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: complaints.append(request.url) if request.url != address else None)
    opened.goto(address)
    yield opened
    context.close()
    assert complaints == []


def first_column(page: Any) -> list[int]:
    texts: list[str] = page.locator("table[data-sortable] tbody th").all_inner_texts()
    return [int(text.split()[0]) for text in texts]


def test_tables_are_sorted_by_mouse_and_by_keyboard(page: Any) -> None:
    head = page.locator("table[data-sortable] thead th").filter(has_text="accuracy")
    scores = page.locator("table[data-sortable] tbody tr")
    place = int(head.evaluate("head => head.cellIndex"))
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    shown = [row for row in scores.evaluate_all(f"rows => rows.map(row => row.cells[{place}].dataset.key)") if row]
    assert [float(score) for score in shown] == sorted(float(score) for score in shown)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    page.locator("table[data-sortable] thead button").first.press("Space")
    assert first_column(page) == list(range(1, 71))
    assert head.get_attribute("aria-sort") == "none"


def test_rows_are_found_by_what_they_say(page: Any) -> None:
    table, field = page.locator("table[data-sortable]"), page.get_by_role("searchbox", name="Show rows with")
    field.fill("DP-NSGD 0.05")
    shown = [text.split() for text in table.locator("tbody tr:visible").all_inner_texts()]
    assert len(shown) == 5
    assert all("DP-NSGD" in words and "0.05" in words for words in shown)
    assert page.locator("output").inner_text() == "5 of 70"
    field.fill("KILLED")
    assert table.locator("tbody tr:visible").count() == 1
    field.fill("")
    assert table.locator("tbody tr:visible").count() == 70
    assert page.locator("output").inner_text() == ""


def test_a_table_with_rows_below_its_end_has_a_shadow_there(page: Any) -> None:
    frame = page.locator(".scroll:has(table[data-sortable])")
    assert frame.evaluate("frame => frame.scrollHeight > frame.clientHeight")
    layers = frame.evaluate("frame => getComputedStyle(frame).backgroundAttachment")
    assert layers == "local, scroll", "the paper moves with the rows, and covers the shadow at the last one"
    page.get_by_role("searchbox", name="Show rows with").fill("DP-NSGD 0.05")
    assert frame.evaluate("frame => frame.scrollHeight === frame.clientHeight")


def test_a_cell_says_its_point_to_mouse_and_keyboard(page: Any) -> None:
    cells = page.locator(".cells").first.locator("label")
    words = [text.split() for text in cells.locator("span").all_text_contents()]
    cells.nth(8).hover()
    assert [text.split() for text in page.evaluate(SAID)] == [words[8]]
    page.mouse.move(0, 0)
    cells.first.locator("input").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    assert [text.split() for text in page.evaluate(SAID)] == [words[8]]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.cells')") is None, "a map is one stop of the tabulator"


@pytest.mark.parametrize("width", [400, 1200, 1600])
def test_what_a_cell_says_stays_on_the_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for group in page.locator(".cells").all():
        for cell in (group.locator("label").first, group.locator("label").last, group.locator("label").nth(6)):
            cell.locator("input").focus()
            box = cell.locator("span").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [400, 1200, 1600])
def test_maps_fill_the_column_and_each_is_whole(page: Any, width: int) -> None:
    """At 400 px too, where one stands below the other; each cell of seven columns says its score."""
    page.set_viewport_size({"width": width, "height": 900})
    column = page.locator(".maps").bounding_box()
    boxes = [cells.bounding_box() for cells in page.locator(".cells").all()]
    assert len(boxes) == 2
    assert max(box["x"] + box["width"] for box in boxes) == pytest.approx(column["x"] + column["width"], abs=1)
    assert (boxes[0]["y"] == boxes[1]["y"]) == (width > 400)
    clipped = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"
    assert page.locator(".cells label > i").evaluate_all(clipped) == []
    assert page.locator(".cells label > i b").evaluate_all("all => all.every(one => one.offsetWidth)")


def test_details_unfold_by_mouse_and_by_keyboard(page: Any) -> None:
    details = page.locator("details:not(details details)")
    details.first.locator("summary").first.click()
    details.nth(1).locator("summary").first.press("Enter")
    assert [details.nth(place).get_attribute("open") for place in (0, 1, 2)] == ["", "", None]


def test_printing_opens_the_folds_and_closes_them_again(page: Any) -> None:
    folds = page.locator("details.fold")
    folds.last.locator("summary").first.click()
    opened = "all => all.map(one => one.open)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert folds.evaluate_all(opened) == [True, True]
    assert page.get_by_role("heading", name="What the price covers").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folds.evaluate_all(opened) == [False, True]


def test_parts_stand_in_reading_order(page: Any) -> None:
    said = page.locator("h2:not(.cards h2)").all_inner_texts()
    assert said[:3] == ["Maps", "Points", "What mattered"]
    assert said[-4:] == ["Privacy in detail", "How to read this page", "For a paper", "Reproduce and verify"]
    places = [page.locator(one).bounding_box()["y"] for one in (".verdict", ".cards", ".conclusion", ".key", ".maps")]
    assert places == sorted(places)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [400, 700, 1600])
def test_nothing_sticks_out_of_a_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_prints_on_pages(page: Any, tmp_path: Path) -> None:
    printed = page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert printed.startswith(b"%PDF")
    page.emulate_media(media="print")
    assert page.locator("body").evaluate("body => getComputedStyle(body).color") == "rgb(0, 0, 0)"


def test_everything_is_named_for_a_screen_reader(page: Any) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, summary, [role=img], [role=region]")]
            .filter(one => !(one.getAttribute("aria-label") || one.textContent).trim()).map(one => one.outerHTML)"""
    )
    assert nameless == []
    headings = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert all(later - before <= 1 for before, later in zip([0, *headings], headings, strict=False))


def test_sweeps_side_by_side_are_legible(
    browser: Any, troubled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPSWEEP_LEDGER", str(troubled.ledger.path))
    opened = browser.new_page()
    opened.goto(write_comparison([troubled.folder], tmp_path).as_uri())
    opened.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    for width in (400, 1400):
        opened.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            opened.emulate_media(color_scheme=scheme)
            assert opened.evaluate(CONTRAST) == []
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()
