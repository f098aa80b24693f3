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
from urllib.parse import quote

import pandas as pd

from dpsweep.accounting.codec import plain
from dpsweep.accounting.durable_files import make_folder_and_missing_parents, write_json
from dpsweep.accounting.errors import turn_read_errors_into_refusal
from dpsweep.accounting.files import refuse_link
from dpsweep.accounting.ledger.book import Spending, body_of_kind
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.notation import epsilon_text_rounded_up
from dpsweep.accounting.printing import escape_invisible_except_line_breaks
from dpsweep.accounting.records.sweep_folder import restrict_to_owner
from dpsweep.reports.advice.advice import advice_sentence_lines, nearest_comparison_for_plan
from dpsweep.reports.content import facts as numbers
from dpsweep.reports.content import sections
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content import tables as sheets
from dpsweep.reports.content.audience import Audience, Reader
from dpsweep.reports.content.facts import Fact, read_bill
from dpsweep.reports.content.panels import build_map_panels
from dpsweep.reports.content.score_scale import ScoreScale
from dpsweep.reports.content.sections import Best, Origin, Segment, read_origin
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.tables import Sheet
from dpsweep.reports.content.told_score import same_answer_sentence
from dpsweep.reports.exhibits import catalogue
from dpsweep.reports.exhibits.exhibit import Exhibit
from dpsweep.reports.exhibits.map_notes import conclusion_sentence, reason_for_no_map
from dpsweep.reports.exhibits.prices import sweep_with_bill_share_column
from dpsweep.reports.figures.drawing import Drawing
from dpsweep.reports.figures.heatmap import draw_joint_and_per_method_heatmaps
from dpsweep.reports.figures.page_figures import PageMaps, page_maps_of_panels, sentence_on_failed_picture
from dpsweep.reports.pages.page_memory import FAILED, FILE, FOLDER
from dpsweep.reports.pages.templates import fill_template, write_file_in_one_rename, write_picture_files
from dpsweep.reports.statement.methods_text import MethodsText, methods_text_for_paper
from dpsweep.reports.statement.statement import (
    cautions_on_large_epsilon_or_delta,
    privacy_statement_lines,
    protects_nobody_sentence,
)
from dpsweep.reports.statement.statement_line import Context, Line, contradicted_lines

SCHEMA = 1
COLUMNS = ("state", "accuracy", "interval", "gap", "steps_run", "seconds", "attempts_charged", "share", "trial")
RELEASE = "dpsweep release"


@dataclass(frozen=True, kw_only=True)
class Banner:
    """The line on top of a page and the sentences below it; `command` writes a page that may be shown, if any may."""

    line: str
    sentences: tuple[str, ...] = ()
    command: str = ""


def curator_banner(sweep: Sweep, *, contradicted: bool) -> Banner:
    """The banner for this sweep's curator; `contradicted` says that the records contradict the statement."""
    line = Audience.CURATOR.banner
    if sweep.plan.has_public_data:
        return Banner(line=protects_nobody_sentence(sweep.plan))
    if contradicted:
        return Banner(
            line=line, sentences=("A line of the privacy statement is violated, so nothing of this page may be shown.",)
        )
    if not sweep.runs.over:
        return Banner(line=line, sentences=("The search is not finished, so nothing of this page may be shown yet.",))
    return Banner(line=line, command=RELEASE if sweep.winner_id is not None or sweep.shown.outcome else "")


@dataclass(frozen=True, kw_only=True)
class EarlierSweep:
    """A sweep that the account paid for before; `page` leads to its page, and is empty if none lies beside this one."""

    plan: str
    date: str
    epsilon: str
    page: str


@dataclass(frozen=True, kw_only=True)
class Page:
    """All contents of a page; an empty or None field is left out. `records` go into `report.json`.

    `nobody` says that the data were declared public, `cautions` what a large epsilon or delta means, `outcome` that a
    search has no winner, `notes` what the plan remarks on its points, `secret` that runs are tries of a secret draw;
    `runs` is the noun for the runs. `advice` says what the epsilon bought elsewhere, where it was measured. `banner`
    says what the price covers, or that nobody is protected. `methods` is a paragraph for a paper, None if nothing is
    claimed. `same_answer` says what always giving the same answer reaches. `conclusion` says which settings matter and
    whether the grid is wide enough, `no_map` why there is no map. `earlier` are the account's earlier sweeps. `repeat`
    is the command that repeats the search on other data.
    """

    audience: Audience
    banner: Banner
    title: str
    headline: str
    unit: str
    measure: str
    scale: ScoreScale
    facts: Mapping[str, Fact]
    statement: tuple[Line, ...]
    best: tuple[Best, ...]
    pictures: tuple[Drawing, ...] = ()
    conclusion: str = ""
    no_map: str = ""
    earlier: tuple[EarlierSweep, ...] = ()
    same_answer: str = ""
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
    repeat: str = ""

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """The exhibits about the results, then those about the price."""
        return (*self.findings, *self.terms)

    @property
    def images(self) -> tuple[Drawing, ...]:
        """All pictures, in the order of the page."""
        return (*self.pictures, *(drawing for exhibit in self.exhibits for drawing in exhibit.drawings))

    @property
    def contradicted_statement_lines(self) -> tuple[Line, ...]:
        """The lines that the records contradict."""
        return contradicted_lines(self.statement)

    @property
    def maps(self) -> PageMaps | None:
        """The maps, from the picture with all methods, which is for papers and not in the page."""
        panels = self.pictures[0].panels if self.pictures else ()
        return page_maps_of_panels(panels, self.scale.heading(self.measure))

    @property
    def failed_maps(self) -> tuple[str, ...]:
        """The sentences on the files of maps that could not be drawn."""
        return tuple(failure_sentences_by_picture(self.pictures).values())


def write_report(folder: Path, ledger: Ledger) -> Path:
    """Renders the curator's page of a sweep folder into `curator/`, replaces an older one, and returns its path.

    Raises `BadInput` if the folder is not a sweep or the ledger did not charge it.
    """
    refuse_link(folder / FOLDER)
    with turn_read_errors_into_refusal(f"the sweep in {folder}"):
        written = write_page(_curators_page(folder, ledger), folder / FOLDER)
    restrict_to_owner(written.parent)
    return written


def _curators_page(folder: Path, ledger: Ledger) -> Page:
    sweep = sweep_with_bill_share_column(table.read_sweep(folder, ledger))
    bill = read_bill(sweep)
    facts = numbers.page_facts_by_name(sweep, bill)
    reader = Reader(audience=Audience.CURATOR, disclosed=sweep.rule.discloses)
    context = Context(sweep=sweep, bill=bill, facts=facts, audience=reader.audience)
    page = page_of_reader(reader, context, privacy_statement_lines(context), sweep)
    pictures, conclusion = maps_and_conclusion_of_sweep(sweep, page.findings)
    return replace(
        page,
        banner=curator_banner(sweep, contradicted=bool(page.contradicted_statement_lines)),
        facts=facts,
        best=sections.best_configurations(
            sweep, trials=_trial_ids_of_final_run_and_best_points(sweep), with_score=True
        ),
        pictures=pictures,
        conclusion=conclusion,
        earlier=tuple(_earlier_sweeps_of_account(sweep)),
        same_answer=same_answer_sentence(sweep),
        trials=sheets.runs_sheet(sweep, COLUMNS),
        records=sweep.rows_for_export(sweep.all_run_rows),
        budget=sections.budget_bar_segments(bill, facts),
        charges=sheets.charges_sheet(bill),
        trouble=sections.unfinished_run_texts(facts),
        errors=sections.error_messages_of_failed_runs(sweep),
        origin=read_origin(sweep, ledger),
        notes=sweep.plan.notes,
        secret=sweep.shown.note,
        runs=sweep.runs.nouns,
        advice=_sentences_on_scores_measured_elsewhere(sweep),
    )


def page_of_reader(reader: Reader, context: Context, statement: tuple[Line, ...], shown: Sweep) -> Page:
    """What the pages of all readers have: the search, its price, its statement and the exhibits for this reader.

    Exhibits are made of `shown`, the sweep with the runs that this reader may see. The numbers of the page, its best
    points, maps and tables are the caller's to add.
    """
    sweep, bill = context.sweep, context.bill
    findings, terms = catalogue.visible_findings_and_terms(shown, bill, reader)
    nobody = protects_nobody_sentence(sweep.plan)
    return Page(
        audience=reader.audience,
        banner=Banner(line=nobody or reader.audience.banner),
        title=sweep.plan.account,
        headline=sections.search_headline_text(sweep, context.facts),
        unit=sweep.plan.unit,
        measure=sweep.score_description,
        scale=sweep.score_scale,
        nobody=nobody,
        facts={},
        statement=statement,
        cautions=cautions_on_large_epsilon_or_delta(sweep.plan, bill),
        best=(),
        no_map=reason_for_no_map(sweep.rule),
        outcome=sweep.shown.outcome,
        findings=findings,
        terms=terms,
        methods=methods_text_for_paper(context) if sweep.runs.over and not contradicted_lines(statement) else None,
    )


def _earlier_sweeps_of_account(sweep: Sweep) -> Iterator[EarlierSweep]:
    """The sweeps that were charged to the account before this one, each with the sum of its charges."""
    charges = sweep.account.charges
    own = min(entry.seq for entry in charges if entry.plan == sweep.plan_id)
    for plan, first in {entry.plan: entry for entry in reversed(charges) if entry.plan and entry.seq < own}.items():
        costs = (body_of_kind(entry, Spending).epsilon for entry in charges if entry.plan == plan)
        page = Path("..", "..", quote(plan, safe=""), FOLDER, FILE)
        yield EarlierSweep(
            plan=plan,
            date=first.at[:10],
            epsilon=epsilon_text_rounded_up(numbers.sum_in_exact_decimals(costs)),
            page=page.as_posix() if (sweep.folder.absolute().parent / plan / FOLDER / FILE).is_file() else "",
        )


def _sentences_on_scores_measured_elsewhere(sweep: Sweep) -> str:
    """What the plan's target epsilon bought elsewhere; empty without a target, and if nothing near was measured."""
    target = sweep.plan.target_epsilon
    if target is None:
        return ""
    return " ".join(advice_sentence_lines(nearest_comparison_for_plan(sweep.plan, target), sweep.plan.account))


def _trial_ids_of_final_run_and_best_points(sweep: Sweep) -> tuple[str, ...]:
    """The final run if there is one, then each method's best point; for a secret draw the winner alone."""
    winner = () if sweep.winner_id is None else (sweep.winner_id,)
    return tuple(dict.fromkeys((*winner, *sweep.winner_id_by_method.values())))


def maps_and_conclusion_of_sweep(sweep: Sweep, findings: Sequence[Exhibit]) -> tuple[tuple[Drawing, ...], str]:
    """The sweep's maps, the one with all methods first, and what they and these exhibits conclude."""
    scale = sweep.score_scale
    panels = build_map_panels(sweep.map_rows, sweep.swept_keys, sweep.rule.name_of_point_score, scale)
    if not panels:
        return (), ""
    pictures = draw_joint_and_per_method_heatmaps(panels, scale.heading(sweep.score_description))
    return pictures, conclusion_sentence(sweep, panels, [one.conclusion for one in findings])


def write_page(page: Page, folder: Path) -> Path:
    """Writes the page with its numbers and pictures, each file in one rename, and returns the page's path.

    A page that may be passed on has each picture as PDF too, which takes longer than all else about a picture. Of a
    picture that failed it has the kind of the error alone, since a message may name what is on this machine.
    """
    make_folder_and_missing_parents(folder)
    public = page.audience is Audience.PUBLIC
    page = _page_with_pdf_files(page) if public else page
    for one in page.images:
        write_picture_files(one, folder, one.pdf() if public else b"")
    if page.methods is not None:
        write_file_in_one_rename(folder / "methods.tex", f"{page.methods.text}\n".encode())
        write_file_in_one_rename(folder / "methods.bib", page.methods.bibtex.encode())
    if page.records is not None:
        write_file_in_one_rename(
            folder / "trials.csv", escape_invisible_except_line_breaks(page.records.to_csv(index=False)).encode()
        )
    write_json(folder / "report.json", to_json(page))
    write_file_in_one_rename(folder / FILE, render_page_as_html(page).encode())
    return folder / FILE


def _page_with_pdf_files(page: Page) -> Page:
    """The page with pictures that have a PDF file or the kind of the error that they failed with."""

    def exhibits_with_pdf_files(shown: tuple[Exhibit, ...]) -> tuple[Exhibit, ...]:
        return tuple(
            replace(one, drawings=tuple(drawing.with_rendered_pdf() for drawing in one.drawings)) for one in shown
        )

    return replace(
        page,
        pictures=tuple(drawing.with_rendered_pdf() for drawing in page.pictures),
        findings=exhibits_with_pdf_files(page.findings),
        terms=exhibits_with_pdf_files(page.terms),
    )


def failure_sentences_by_picture(images: Iterable[Drawing]) -> dict[str, str]:
    """The sentences on the pictures that failed, by the pictures' names."""
    return {image.name: sentence_on_failed_picture(image) for image in images if image.failure}


def render_page_as_html(page: Page) -> str:
    """The page as one HTML document that loads nothing from elsewhere."""
    return fill_template("report.html.j2", page=page)


def to_json(page: Page) -> dict[str, Any]:
    """The price, statement, scores, tables and charges of the page, with their sources."""
    content: dict[str, Any] = plain(
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
            **(
                {FAILED: failure_sentences_by_picture(page.images)} if failure_sentences_by_picture(page.images) else {}
            ),
            **({"outcome": page.outcome} if page.outcome else {}),
            **({"cautions": list(page.cautions)} if page.cautions else {}),
            **({"methods": page.methods.text, "bibtex": page.methods.bibtex} if page.methods else {}),
            **({"same_answer": page.same_answer} if page.same_answer and page.best else {}),
            **({"conclusion": page.conclusion} if page.conclusion else {}),
            **({"no_map": page.no_map} if page.no_map else {}),
            **({"repeat": page.repeat} if page.repeat else {}),
            "best": [
                {"method": one.method, "interval": one.interval, "confidence": one.confidence, "score": one.score}
                for one in page.best
                if one.score
            ],
            "exhibits": {
                exhibit.key: {
                    "source": exhibit.source,
                    "findings": list(exhibit.findings),
                    "tables": [{"caption": sheet.caption, "rows": sheet.rows_as_dicts()} for sheet in exhibit.sheets],
                }
                for exhibit in page.exhibits
            },
            "charges": {"source": numbers.LEDGER, "rows": [] if page.charges is None else page.charges.rows_as_dicts()},
            "trials": {
                "source": f"{numbers.PLAN}, {numbers.RESULTS}, {numbers.LEDGER}",
                "rows": [] if page.records is None else page.records.to_dict("records"),
            },
        }
    )
    return content
