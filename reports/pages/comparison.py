"""Several sweeps side by side: a page for their curator, and a package of their releases with a page that may leave.

Both pages are made of what each sweep's own release may show, so a rule that hides its losers hides them here too, with
their number. No sweep is called the best: a choice among sweeps is a selection that none of them paid for, and no
sealed part covers it, since each part answers once, for one sweep. Invariants:

* What is charged to an account stands once, and comes from its ledger: no prices of sweeps are added here.
* A package holds the release of each sweep, file by file, as `release.py` wrote it, and so each is in the ledger.
* A page is what the template makes of its record, the JSON beside it, and of nothing else. Whoever has both can write
  the page again (`reports/disclosure/package_check.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpsweep.accounting.codec import plain
from dpsweep.accounting.durable_files import make_folder_and_missing_parents, short_digest_of_json, write_json
from dpsweep.accounting.errors import BadInput, turn_read_errors_into_refusal
from dpsweep.accounting.files import refuse_link
from dpsweep.accounting.ledger.statement import reserved_amounts
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.records.released_files import ReleasedWinner
from dpsweep.accounting.records.sweep_folder import restrict_to_owner
from dpsweep.accounting.rehearsal import ledger_of_sweep_folder
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.reports.content import sections
from dpsweep.reports.content import sweep_table as table
from dpsweep.reports.content.audience import Audience, Needs, most_disclosed
from dpsweep.reports.content.facts import LEDGER, Bill, Fact, page_facts_by_name, read_bill
from dpsweep.reports.content.formatting import axis_label, enumeration_text
from dpsweep.reports.content.panels import MapPanel, build_map_panels
from dpsweep.reports.content.sections import Best
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.exhibits.map_notes import reason_for_no_map
from dpsweep.reports.figures.heatmap import draw_one_heatmap
from dpsweep.reports.figures.page_figures import PageMaps, page_maps_of_panels
from dpsweep.reports.pages import release
from dpsweep.reports.pages.curator_page import failure_sentences_by_picture
from dpsweep.reports.pages.page_memory import COMPARISON, FAILED, FILE, FOLDER, NUMBERS
from dpsweep.reports.pages.released_package import ReleaseFormat
from dpsweep.reports.pages.templates import fill_template, write_file_in_one_rename, write_picture_files
from dpsweep.reports.statement.statement import cautions_on_large_epsilon_or_delta

TEMPLATE = "comparison.html.j2"
MEMBER = "sweep-{}"
"""The folder of a sweep's release in a package: a plan's id stays with the curator."""

SHOWN = {
    Disclosure.ALL_SCORES: "the score of every run",
    Disclosure.WINNER_SCORE: "the winner and its score",
    Disclosure.WINNER: "the winner without its score",
    None: "that the search ended",
}
"""What a rule's price covers, by the most that it discloses."""


@dataclass(frozen=True, kw_only=True)
class ComparedSweep:
    """A sweep: what was searched, under which rule, its price, the selected point, and what may be told of its score.

    `number` counts in the order of the command. `page` leads to the sweep's own page. `plan` is empty in a package.
    `alarms` are the lines of the statement that the records contradict; then there is no claim.
    """

    number: int
    account: str
    page: str
    plan: str
    searched: str
    axes: tuple[str, ...]
    rule: str
    shows: str
    epsilon: Fact
    delta: Fact
    best: Best | None
    outcome: str
    alarms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Total:
    """All that was charged to an account; `nobody` says that its records were declared public.

    `sweeps` are the numbers of its sweeps here, `others` says that something else was charged, `meaning` what the total
    means and `cautions` what a large one does.
    """

    account: str
    sweeps: tuple[int, ...]
    unit: str
    epsilon: Fact
    delta: Fact
    others: bool
    nobody: bool
    meaning: str
    cautions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MeasuredMaps:
    """The maps of scores of one kind, on one colour scale; so many maps stand before them on the page."""

    measure: str
    before: int
    maps: PageMaps


@dataclass(frozen=True, kw_only=True)
class ComparisonPage:
    """All contents of the page; `command` writes one that may be passed on, and is empty in a package."""

    audience: Audience
    banner: str
    title: str
    command: str
    totals: tuple[Total, ...]
    sweeps: tuple[ComparedSweep, ...]
    maps: tuple[MeasuredMaps, ...]
    no_maps: tuple[str, ...]
    failed_maps: tuple[str, ...]


def write_comparison(folders: Sequence[Path], target: Path | None = None) -> Path:
    """Writes the curator's page of these sweeps into `curator/` of `target`, and returns its path.

    Raises `BadInput` if a folder is not a sweep, if its ledger did not charge it, or if two folders are of one plan.
    """
    usual = _folder_of_comparison(folders)
    target = refuse_link((target or usual) / FOLDER)
    with turn_read_errors_into_refusal("these sweeps"):
        sweeps = _read_sweeps(folders)
        links = [
            quote(Path(os.path.relpath((folder / FOLDER / FILE).absolute(), target.absolute())).as_posix())
            for folder in folders
        ]
        page = _write_page(sweeps, links, Audience.CURATOR, target)
    restrict_to_owner(target)
    return page


def release_sweeps(
    folders: Sequence[Path], formats: Sequence[ReleaseFormat] = (), target: Path | None = None
) -> Iterator[Path]:
    """Releases each sweep, and several of them as one package too, `release/` in `target`; yields each page.

    The package appears in one rename, after the release of each sweep. Raises `BadInput` for a sweep that has no
    release, with the reason, and writes no package then.
    """
    usual = _folder_of_comparison(folders)
    target = target or usual
    for folder in folders:
        yield release.write_release(folder, ledger_of_sweep_folder(folder), formats)
    if len(folders) == 1:
        return
    package, partial = (refuse_link(target / name) for name in (release.FOLDER, f".{release.FOLDER}.partial"))
    make_folder_and_missing_parents(target)
    with release.hold_release_lock(target), turn_read_errors_into_refusal("these sweeps"):
        shutil.rmtree(partial, ignore_errors=True)
        for number, folder in enumerate(folders, start=1):
            with release.hold_release_lock(folder):
                shutil.copytree(refuse_link(folder / release.FOLDER), partial / MEMBER.format(number), symlinks=True)
            member = partial / MEMBER.format(number)
            ReleasedWinner.of_release(member).digest_of_all_files(member)  # refuses links
        links = [f"{MEMBER.format(number)}/{FILE}" for number, _ in enumerate(folders, start=1)]
        _write_page(_read_sweeps(folders), links, Audience.PUBLIC, partial)
        with suppress(FileNotFoundError):
            shutil.rmtree(package)
        partial.rename(package)
    yield package / COMPARISON


def _folder_of_comparison(folders: Sequence[Path]) -> Path:
    """`comparisons/ID` in the current folder; the id is that of the plans, in whatever order."""
    plans: dict[str, Path] = {}
    for folder in folders:
        with turn_read_errors_into_refusal(f"the sweep in {folder}"):
            plan = Plan.read(folder / "plan.json").id
        if plan in plans:
            raise BadInput(f"Expected different sweeps, got the one of plan {plan} twice: {plans[plan]} and {folder}.")
        plans[plan] = folder
    return Path("comparisons", short_digest_of_json(sorted(plans)))


def _read_sweeps(folders: Iterable[Path]) -> list[Sweep]:
    return [table.read_sweep(folder, ledger_of_sweep_folder(folder)) for folder in folders]


def _write_page(sweeps: Sequence[Sweep], links: Sequence[str], audience: Audience, folder: Path) -> Path:
    """Writes the record, its page and its pictures; a package has each picture as PDF too."""
    bills = [read_bill(sweep) for sweep in sweeps]
    public, panels = audience is Audience.PUBLIC, _panels_by_heading(sweeps)
    pictures = [
        draw_one_heatmap("-".join(["heatmap", *([str(place)] if place > 1 else [])]), own, heading)
        for place, ((heading, _), own) in enumerate(panels.items(), start=1)
    ]
    if public:
        pictures = [picture.with_rendered_pdf() for picture in pictures]
    rows = tuple(
        _row_of_sweep(number, sweep, bill, link, audience)
        for number, (sweep, bill, link) in enumerate(zip(sweeps, bills, links, strict=True), start=1)
    )
    page = ComparisonPage(
        audience=audience,
        banner=audience.banner,
        title=enumeration_text([*dict.fromkeys(sweep.plan.account for sweep in sweeps)]),
        command="" if public else "dpsweep release",
        totals=tuple(_totals_of_accounts(sweeps, bills)),
        sweeps=rows,
        maps=tuple(_maps_by_measure(panels)),
        no_maps=tuple(
            f"Sweep {number}: {reason}"
            for number, sweep in enumerate(sweeps, start=1)
            if (reason := reason_for_no_map(sweep.rule))
        ),
        failed_maps=tuple(failure_sentences_by_picture(pictures).values()),
    )
    make_folder_and_missing_parents(folder)
    for picture in pictures:
        write_picture_files(picture, folder, picture.pdf() if public else b"")
    record = record_of_comparison(page) | {FAILED: failure_sentences_by_picture(pictures)}
    write_json(folder / NUMBERS[COMPARISON], record)
    write_file_in_one_rename(folder / COMPARISON, page_of_record(record).encode())
    return folder / COMPARISON


def record_of_comparison(page: ComparisonPage) -> dict[str, Any]:
    """The page as plain values, from which it is written: fields and properties by name."""
    record: dict[str, Any] = plain(_plain_value(page))
    return record


def page_of_record(record: Mapping[str, Any]) -> str:
    """The page that the template makes of a record."""
    return fill_template(TEMPLATE, page=record)


def _plain_value(value: object) -> Any:
    if is_dataclass(value):
        computed = [name for name, one in vars(type(value)).items() if isinstance(one, (property, cached_property))]
        names = [*(field.name for field in fields(value)), *computed]
        return {name: _plain_value(getattr(value, name)) for name in names}
    if isinstance(value, (list, tuple)):
        return [_plain_value(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def _row_of_sweep(number: int, sweep: Sweep, bill: Bill, link: str, audience: Audience) -> ComparedSweep:
    facts = page_facts_by_name(sweep, bill)
    return ComparedSweep(
        number=number,
        account=sweep.plan.account,
        page=link,
        plan="" if audience is Audience.PUBLIC else sweep.plan_id,
        searched=sections.search_headline_text(sweep, facts),
        axes=tuple(dict.fromkeys(axis_label(key) for key in sweep.swept_keys)),
        rule=sweep.rule.name,
        shows=SHOWN[most_disclosed(sweep.rule.discloses)],
        epsilon=facts["honest_epsilon"],
        delta=facts["honest_delta"],
        best=next(iter(release.released_best_points(sweep)), None) if sweep.runs.over else None,
        outcome=sweep.shown.outcome if sweep.runs.over else "The search is not finished.",
        alarms=tuple(line.text for line in release.contradicted_public_lines(sweep, bill)),
    )


def _panels_by_heading(sweeps: Sequence[Sweep]) -> dict[tuple[str, str], list[MapPanel]]:
    """The panels of each kind of score, with all sweeps' panels of a method in turn."""
    groups: dict[tuple[str, str], list[MapPanel]] = {}
    for number, sweep in enumerate(sweeps, start=1):
        if not release.public_reader(sweep).may_see(Needs.ALL_SCORES):
            continue
        shown, score, scale = release.sweep_with_disclosed_runs_only(sweep), sweep.score_description, sweep.score_scale
        groups.setdefault((scale.heading(score), f"{score} {scale.in_words}"), []).extend(
            replace(panel, facet=(f"sweep {number}", *panel.facet))
            for panel in build_map_panels(shown.map_rows, sweep.swept_keys, sweep.rule.name_of_point_score, scale)
        )
    for panels in groups.values():
        methods = list(dict.fromkeys(panel.method for panel in panels))
        panels.sort(key=lambda panel: methods.index(panel.method))
    return {heading: panels for heading, panels in groups.items() if panels}


def _maps_by_measure(groups: Mapping[tuple[str, str], Sequence[MapPanel]]) -> Iterator[MeasuredMaps]:
    before = 0
    for (heading, measure), panels in groups.items():
        if (maps := page_maps_of_panels(panels, heading)) is not None:
            yield MeasuredMaps(measure=measure, before=before, maps=maps)
        before += len(panels)


def _totals_of_accounts(sweeps: Sequence[Sweep], bills: Sequence[Bill]) -> Iterator[Total]:
    """What the ledger has charged to each account in all; each rehearsal has an account of its own."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, sweep in enumerate(sweeps):
        places.setdefault((sweep.account.entries[0].digest, sweep.plan.account), []).append(place)
    source = f"{LEDGER}: the account's charges, all together"
    for (_, account), own in places.items():
        last, bill = sweeps[own[-1]], bills[own[-1]]
        epsilon, delta = reserved_amounts(last.account)
        charges = tuple(charge for place in own for charge in bills[place].charges)
        plans = {sweeps[place].plan_id for place in own}
        others = any(entry.plan not in plans for entry in last.account.charges)
        total = replace(bill, epsilon=epsilon, delta=delta, charges=charges)
        meaning = total.meaning_for_plan(last.plan)
        yield Total(
            account=account,
            sweeps=tuple(place + 1 for place in own),
            unit=last.plan.unit,
            epsilon=Fact(value=epsilon, text=epsilon_text_rounded_up(epsilon), source=source),
            delta=Fact(value=delta, text=delta_text_rounded_up(delta), source=source),
            others=others,
            nobody=last.account.budget.promises_nothing,
            meaning=(replace(meaning, total_variation=None) if others else meaning).coin_sentence,
            cautions=cautions_on_large_epsilon_or_delta(last.plan, total),
        )
