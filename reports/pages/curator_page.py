"""A page as one frozen value, and its one way onto the disk: HTML, the numbers as JSON, the pictures.

What a page may hold is decided by who composes it (`write_report` here for the curator, `release` for
everybody); rendering shows what is there and knows no audience. All text is escaped by the template engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from dpsweep.accounting.json_files import in_words, write_json
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import close_to_others
from dpsweep.accounting.validation import as_written, refuse_link
from dpsweep.reports.content import facts as numbers
from dpsweep.reports.content import sections
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content import tables as sheets
from dpsweep.reports.content.audience import Audience, Reader
from dpsweep.reports.content.charges import read_bill
from dpsweep.reports.content.facts import Fact
from dpsweep.reports.content.panels import arrange
from dpsweep.reports.content.provenance import Origin, read_origin
from dpsweep.reports.content.sections import Best, Segment
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits import catalogue
from dpsweep.reports.exhibits.budget_by_method import with_shares
from dpsweep.reports.exhibits.exhibit import Exhibit, shown
from dpsweep.reports.figures.heatmap import Picture, pictures
from dpsweep.reports.figures.svg import fragment
from dpsweep.reports.pages.templates import fill, store
from dpsweep.reports.statement.public_data import NOBODY, statement_of
from dpsweep.reports.statement.statement import cautions_of
from dpsweep.reports.statement.statement_line import Context, Line, violations

SCHEMA = 1
FOLDER = "curator"
FILE = "report.html"
COLUMNS = ("state", "accuracy", "interval", "gap", "steps_run", "seconds", "attempts_charged", "share", "trial")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture in the page, with its numbers in tables below it."""

    title: str
    svg: Markup
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that a page says; what is empty or None is not there. `records` go into `report.json`.

    `nobody` says that the data were declared public, `cautions` what a large epsilon or delta means, `outcome` that a
    search gave nothing, `secret` that runs are tries of a secret draw, `runs` what they are called.
    """

    audience: Audience
    title: str
    headline: str
    unit: str
    measure: str
    facts: Mapping[str, Fact]
    statement: tuple[Line, ...]
    best: tuple[Best, ...]
    pictures: tuple[Picture, ...] = ()
    trials: Sheet | None = None
    records: pd.DataFrame | None = None
    budget: tuple[Segment, ...] = ()
    charges: Sheet | None = None
    trouble: tuple[str, ...] | None = None
    errors: tuple[str, ...] = ()
    origin: Origin | None = None
    nobody: str = ""
    cautions: tuple[str, ...] = ()
    outcome: str = ""
    secret: str = ""
    runs: str = ""
    findings: tuple[Exhibit, ...] = ()
    terms: tuple[Exhibit, ...] = ()

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """Those about what came out, and those about the price."""
        return (*self.findings, *self.terms)

    @property
    def alarms(self) -> tuple[Line, ...]:
        """What the records speak against."""
        return violations(self.statement)

    @property
    def repeated(self) -> bool:
        """Whether a cell of a map stands for several runs."""
        return any(
            cell.runs > 1 for picture in self.pictures for panel in picture.panels for cell in panel.cells.values()
        )

    @property
    def figures(self) -> tuple[Figure, ...]:
        """One figure per method, for the page; the first picture, all methods in one, is for papers."""
        return figures(self.pictures)


def figures(drawn: Sequence[Picture]) -> tuple[Figure, ...]:
    """What a page shows of pictures that `heatmap.pictures` drew."""
    return tuple(
        Figure(
            title=picture.panels[0].label,
            svg=fragment(picture),
            sheets=tuple(sheets.panel_sheet(panel) for panel in picture.panels),
        )
        for picture in drawn[1:]
    )


def write_report(folder: Path, ledger: Ledger) -> Path:
    """Renders the curator's page of a sweep folder into `curator/`, over an older one, and returns its path.

    Raises `BadInput` where the folder is no sweep or the ledger did not charge it.
    """
    refuse_link(folder / FOLDER)
    with as_written(f"the sweep in {folder}"):
        written = write(_curators_page(folder, ledger), folder / FOLDER)
    close_to_others(written.parent)
    return written


def _curators_page(folder: Path, ledger: Ledger) -> Page:
    sweep = with_shares(table.read(folder, ledger))
    bill = read_bill(sweep)
    found = numbers.read_facts(sweep, bill)
    reader = Reader(audience=Audience.CURATOR, disclosed=sweep.rule.discloses)
    return Page(
        audience=reader.audience,
        title=sweep.plan.account,
        headline=sections.headline(sweep, found),
        unit=sweep.plan.unit,
        measure=sweep.measure,
        nobody=nobody(sweep),
        facts=found,
        statement=statement_of(Context(sweep=sweep, bill=bill, facts=found, audience=reader.audience)),
        cautions=cautions_of(sweep.plan, bill),
        best=sections.best(sweep, trials=_on_top(sweep), with_score=True),
        pictures=() if sweep.runs.drawn else draw(sweep),
        trials=sheets.trials(sweep, COLUMNS),
        records=sweep.exported(sweep.table),
        budget=sections.budget(bill, found),
        charges=sheets.charges(bill),
        trouble=sections.trouble(found),
        errors=sections.errors(sweep),
        origin=read_origin(sweep, ledger),
        outcome=sections.outcome(sweep),
        secret=sections.SECRET if sweep.runs.drawn else "",
        runs=sweep.runs.nouns,
        findings=shown(catalogue.FINDINGS, sweep, bill, reader),
        terms=shown(catalogue.TERMS, sweep, bill, reader),
    )


def _on_top(sweep: Sweep) -> tuple[str, ...]:
    """Each method's best point; of a secret draw the winner alone."""
    if not sweep.runs.drawn:
        return tuple(sweep.winners.values())
    return () if sweep.winner is None else (sweep.winner,)


def nobody(sweep: Sweep) -> str:
    """That a search on data declared public protects nobody, in place of a price; else nothing."""
    return NOBODY if sweep.plan.public else ""


def draw(sweep: Sweep) -> tuple[Picture, ...]:
    """The sweep's maps, the one with all methods first."""
    return pictures(arrange(sweep.cells, sweep.axes), f"{sweep.measure}, %")


def write(page: Page, folder: Path) -> Path:
    """Writes the page with its numbers and pictures, each file in one rename, and returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    drawings = [drawing for exhibit in page.exhibits for drawing in exhibit.drawings]
    for name, png, svg in ((one.name, one.png, one.svg) for own in (page.pictures, drawings) for one in own):
        store(folder / f"{name}.png", png)
        store(folder / f"{name}.svg", svg.encode())
    if page.records is not None:
        store(folder / "trials.csv", page.records.to_csv(index=False).encode())
    write_json(folder / "report.json", to_json(page))
    store(folder / FILE, render(page).encode())
    return folder / FILE


def render(page: Page) -> str:
    """The page as one HTML document that asks nobody for anything."""
    return fill("report.html.j2", page=page)


def to_json(page: Page) -> dict[str, Any]:
    """Every number of the page with its source."""
    form: dict[str, Any] = in_words(
        {
            "schema": SCHEMA,
            "audience": page.audience.value,
            "title": page.title,
            "measure": page.measure,
            "facts": numbers.to_json(page.facts),
            "statement": [
                {
                    "topic": line.topic,
                    "text": line.text,
                    "standing": line.standing.value,
                    "evidence": list(line.evidence),
                }
                for line in page.statement
            ],
            **({"outcome": page.outcome} if page.outcome else {}),
            **({"cautions": list(page.cautions)} if page.cautions else {}),
            "exhibits": {
                exhibit.key: {
                    "source": exhibit.source,
                    "said": list(exhibit.said),
                    "tables": [{"caption": sheet.caption, "rows": sheet.plain()} for sheet in exhibit.sheets],
                }
                for exhibit in page.exhibits
            },
            "charges": {"source": numbers.LEDGER, "rows": [] if page.charges is None else page.charges.plain()},
            "trials": {
                "source": f"{numbers.PLAN}, {numbers.RESULTS}, {numbers.LEDGER}",
                "rows": [] if page.records is None else page.records.to_dict("records"),
            },
        }
    )
    return form
