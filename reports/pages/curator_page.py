"""The curator's page, and the frozen value from which every page is written as HTML, JSON and pictures.

The function that composes a page decides what it may contain: `write_report` here for the curator, `release` for the
public. Rendering shows everything in the value. The template engine escapes all text. The banner on top says what on
the page the price covers, and what it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from dpsweep.accounting.durable_files import make_folder, replace_infinities_by_words, write_json
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.ledger.private_store import close_to_others
from dpsweep.accounting.printing import visible_lines
from dpsweep.accounting.validation import as_written, refuse_link
from dpsweep.reports.advice.advice import comparison_for, in_one_sentence
from dpsweep.reports.content import facts as numbers
from dpsweep.reports.content import sections
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content import tables as sheets
from dpsweep.reports.content.audience import Audience, Needs, Reader
from dpsweep.reports.content.facts import Fact, read_bill
from dpsweep.reports.content.formatting import enumeration_text
from dpsweep.reports.content.panels import arrange_panels
from dpsweep.reports.content.sections import Best, Origin, Segment, read_origin
from dpsweep.reports.content.sweep_table import State, Sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.exhibits import catalogue
from dpsweep.reports.exhibits.exhibit import Exhibit, visible_exhibits
from dpsweep.reports.exhibits.prices import with_shares
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.heatmap import pictures
from dpsweep.reports.figures.page_figures import PanelTexts, cell_texts, column_shares, failure_sentence, inline_svg
from dpsweep.reports.pages.page_memory import FAILED, FILE, FOLDER
from dpsweep.reports.pages.templates import fill_template, store, store_picture
from dpsweep.reports.statement.methods_text import MethodsText, methods_text
from dpsweep.reports.statement.statement import cautions_of, protects_nobody_line, statement_of
from dpsweep.reports.statement.statement_line import Context, Line, contradicted_lines

SCHEMA = 1
COLUMNS = ("state", "accuracy", "interval", "gap", "steps_run", "seconds", "attempts_charged", "share", "trial")
RELEASE = "dpsweep release"
_SHOWN_STATES = (State.FINISHED, State.DIVERGED)
"""The outcomes that a release names; it says of all others that there is no result."""


@dataclass(frozen=True, kw_only=True)
class Banner:
    """The line on top of a page and the sentences below it; `command` writes a page that may be shown, if any may."""

    line: str
    sentences: tuple[str, ...] = ()
    command: str = ""


def banner_of(sweep: Sweep, exhibits: Sequence[Exhibit], *, contradicted: bool) -> Banner:
    """The banner for this sweep's curator; `contradicted` says that the records contradict the statement."""
    line = Audience.CURATOR.banner
    if sweep.plan.public:
        return Banner(line=protects_nobody_line(sweep.plan))
    if contradicted:
        return Banner(line=line, sentences=("The records contradict the claim, so no part of it may be shown.",))
    if not sweep.runs.over:
        return Banner(line=line, sentences=("The search is not finished, so no part of it may be shown yet.",))
    reader = Reader(audience=Audience.PUBLIC, disclosed=sweep.rule.discloses)
    parts = [*_page_parts(sweep), *((f"“{one.title}”", one.needs) for one in exhibits)]
    covered = [name for name, needs in parts if reader.may_see(needs)]
    uncovered = [name for name, needs in parts if not reader.may_see(needs)]
    return Banner(
        line=line,
        sentences=(
            f"The price does not cover {enumeration_text(uncovered)}.",
            *((f"It covers {enumeration_text(covered)}; what it covers may be shown as it is.",) if covered else ()),
        ),
        command=RELEASE if sweep.winner is not None or sweep.rule.draws_in_secret else "",
    )


def _page_parts(sweep: Sweep) -> Iterator[tuple[str, Needs]]:
    """The parts beside the exhibits, in the order of the page, and what a price must cover before others see them."""
    if sweep.winner is not None:
        yield "the best point", Needs.WINNER
        yield "its score", Needs.WINNER_SCORE
    yield "the account's budget", Needs.CURATOR
    if sweep.rule.draws_in_secret:
        yield "the number of tries, their points, scores and times", Needs.CURATOR
    else:
        states = set(sweep.all_runs["state"])
        reasons = not states.issubset(_SHOWN_STATES)
        if reasons:
            yield "why runs have no score, which the maps show too", Needs.CURATOR
        if State.FINISHED in states:
            yield "the scores of all runs", Needs.ALL_SCORES
        if State.FINISHED in states and not reasons:
            yield "the maps", Needs.ALL_SCORES
        yield "times and folders of runs", Needs.CURATOR
    yield "the charges", Needs.CURATOR
    yield "“Reproduce and verify”", Needs.CURATOR


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture of the page, with a text for each cell, and with its numbers in tables below.

    `width` is its own width in CSS pixels, `share` its share of a wide page's column.
    """

    name: str
    title: str
    width: int
    share: float
    svg: Markup
    texts: tuple[PanelTexts, ...]
    sheets: tuple[Sheet, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """All contents of a page; an empty or None field is left out. `records` go into `report.json`.

    `nobody` says that the data were declared public, `cautions` what a large epsilon or delta means, `outcome` that a
    search has no winner, `notes` what the plan remarks on its points, `secret` that runs are tries of a secret draw;
    `runs` is the noun for the runs. `advice` says what the epsilon bought elsewhere, where it was measured. `banner`
    says what the price covers, or that nobody is protected. `methods` is a paragraph for a paper, None if nothing is
    claimed.
    """

    audience: Audience
    banner: Banner
    title: str
    headline: str
    unit: str
    measure: str
    facts: Mapping[str, Fact]
    statement: tuple[Line, ...]
    best: tuple[Best, ...]
    pictures: tuple[Drawing, ...] = ()
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
    notes: tuple[str, ...] = ()
    secret: str = ""
    runs: str = ""
    advice: str = ""
    findings: tuple[Exhibit, ...] = ()
    terms: tuple[Exhibit, ...] = ()
    methods: MethodsText | None = None

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """The exhibits about the results, then those about the price."""
        return (*self.findings, *self.terms)

    @property
    def images(self) -> tuple[Drawing, ...]:
        """All pictures, in the order of the page."""
        return (*self.pictures, *(drawing for exhibit in self.exhibits for drawing in exhibit.drawings))

    @property
    def alarms(self) -> tuple[Line, ...]:
        """The lines that the records contradict."""
        return contradicted_lines(self.statement)

    @property
    def repeated(self) -> bool:
        """Whether a cell of a map is the mean of several runs."""
        return any(
            cell.runs > 1 for picture in self.pictures for panel in picture.panels for cell in panel.cells.values()
        )

    @property
    def failure_for_papers(self) -> str:
        """The sentence that the picture with all methods, which the page does not show, could not be drawn."""
        return "".join(failure_sentence(picture) for picture in self.pictures[:1] if picture.failure)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """One figure per method; the first picture, which has all methods, is for papers and not in the page."""
        return figures(self.pictures)


def figures(images: Sequence[Drawing]) -> tuple[Figure, ...]:
    """The page's figures, from the pictures that `heatmap.pictures` drew."""
    shown = images[1:]
    sizes = [picture.css_size for picture in shown]
    return tuple(
        Figure(
            name=picture.name,
            title=picture.panels[0].label,
            width=round(size[0]),
            share=share,
            svg=inline_svg(picture),
            texts=() if picture.failure else cell_texts(picture.panels),
            sheets=tuple(sheets.panel_sheet(panel) for panel in picture.panels),
        )
        for picture, size, share in zip(shown, sizes, column_shares(sizes), strict=True)
    )


def write_report(folder: Path, ledger: Ledger) -> Path:
    """Renders the curator's page of a sweep folder into `curator/`, replaces an older one, and returns its path.

    Raises `BadInput` if the folder is not a sweep or the ledger did not charge it.
    """
    refuse_link(folder / FOLDER)
    with as_written(f"the sweep in {folder}"):
        written = write_page(_curators_page(folder, ledger), folder / FOLDER)
    close_to_others(written.parent)
    return written


def _curators_page(folder: Path, ledger: Ledger) -> Page:
    sweep = with_shares(table.read(folder, ledger))
    bill = read_bill(sweep)
    facts = numbers.read_facts(sweep, bill)
    reader = Reader(audience=Audience.CURATOR, disclosed=sweep.rule.discloses)
    context = Context(sweep=sweep, bill=bill, facts=facts, audience=reader.audience)
    statement = statement_of(context)
    findings = visible_exhibits(catalogue.FINDINGS, sweep, bill, reader)
    terms = visible_exhibits(catalogue.TERMS, sweep, bill, reader)
    return Page(
        audience=reader.audience,
        title=sweep.plan.account,
        headline=sections.headline(sweep, facts),
        unit=sweep.plan.unit,
        measure=sweep.measure,
        nobody=protects_nobody_line(sweep.plan),
        facts=facts,
        statement=statement,
        cautions=cautions_of(sweep.plan, bill),
        best=sections.best(sweep, trials=_winning_trials(sweep), with_score=True),
        pictures=draw_maps_of_sweep(sweep),
        trials=sheets.trials(sweep, COLUMNS),
        records=sweep.exported(sweep.all_runs),
        budget=sections.budget(bill, facts),
        charges=sheets.charges(bill),
        trouble=sections.unfinished_runs_text(facts),
        errors=sections.errors(sweep),
        origin=read_origin(sweep, ledger),
        outcome=sweep.shown.outcome,
        notes=sweep.plan.notes,
        secret=sweep.shown.note,
        runs=sweep.runs.nouns,
        advice=_advice_sentence(sweep),
        findings=findings,
        terms=terms,
        banner=banner_of(sweep, (*findings, *terms), contradicted=bool(contradicted_lines(statement))),
        methods=methods_text(context) if sweep.runs.over and not contradicted_lines(statement) else None,
    )


def _advice_sentence(sweep: Sweep) -> str:
    """What the plan's target epsilon bought elsewhere; empty without a target, and if nothing near was measured."""
    target = sweep.plan.target_epsilon
    return "" if target is None else " ".join(in_one_sentence(comparison_for(sweep.plan, target)))


def _winning_trials(sweep: Sweep) -> tuple[str, ...]:
    """The final run if there is one, then each method's best point; for a secret draw the winner alone."""
    winner = () if sweep.winner is None else (sweep.winner,)
    return tuple(dict.fromkeys((*winner, *sweep.winners.values())))


def draw_maps_of_sweep(sweep: Sweep) -> tuple[Drawing, ...]:
    """The sweep's maps, the one with all methods first."""
    return pictures(arrange_panels(sweep.cells, sweep.axes, sweep.rule.score_of_point), f"{sweep.measure}, %")


def write_page(page: Page, folder: Path) -> Path:
    """Writes the page with its numbers and pictures, each file in one rename, and returns the page's path.

    A page that may be passed on has each picture as PDF too, which takes longer than all else about a picture. Of a
    picture that failed it has the kind of the error alone, since a message may name what is on this machine.
    """
    make_folder(folder)
    public = page.audience is Audience.PUBLIC
    page = _page_with_pdf_files(page) if public else page
    for one in page.images:
        store_picture(one, folder, one.pdf() if public else b"")
    if page.methods is not None:
        store(folder / "methods.tex", f"{page.methods.text}\n".encode())
        store(folder / "methods.bib", page.methods.bibtex.encode())
    if page.records is not None:
        store(folder / "trials.csv", visible_lines(page.records.to_csv(index=False)).encode())
    write_json(folder / "report.json", to_json(page))
    store(folder / FILE, render(page).encode())
    return folder / FILE


def _page_with_pdf_files(page: Page) -> Page:
    """The page with pictures that have a PDF file or the kind of the error that they failed with."""

    def exhibits(shown: tuple[Exhibit, ...]) -> tuple[Exhibit, ...]:
        return tuple(replace(one, drawings=tuple(drawing.for_all() for drawing in one.drawings)) for one in shown)

    return replace(
        page,
        pictures=tuple(drawing.for_all() for drawing in page.pictures),
        findings=exhibits(page.findings),
        terms=exhibits(page.terms),
    )


def failures(images: Iterable[Drawing]) -> dict[str, str]:
    """The sentences on the pictures that failed, by the pictures' names."""
    return {image.name: failure_sentence(image) for image in images if image.failure}


def render(page: Page) -> str:
    """The page as one HTML document that loads nothing from elsewhere."""
    return fill_template("report.html.j2", page=page)


def to_json(page: Page) -> dict[str, Any]:
    """Every number of the page with its source."""
    content: dict[str, Any] = replace_infinities_by_words(
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
                    "level": line.level.value,
                    "evidence": list(line.evidence),
                }
                for line in page.statement
            ],
            **({FAILED: failures(page.images)} if failures(page.images) else {}),
            **({"outcome": page.outcome} if page.outcome else {}),
            **({"cautions": list(page.cautions)} if page.cautions else {}),
            **({"methods": page.methods.text, "bibtex": page.methods.bibtex} if page.methods else {}),
            "exhibits": {
                exhibit.key: {
                    "source": exhibit.source,
                    "findings": list(exhibit.findings),
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
    return content
