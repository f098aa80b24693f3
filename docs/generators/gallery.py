"""Writes docs/reproduction.md: the claims in one screen, each claim table by table, the margins, and every figure.

python docs/generators/gallery.py [REPRODUCTIONS]

Everything is made from the results in docs/full_size, one compressed file a figure, and from the accountants; nothing
is trained. REPRODUCTIONS is where `make reproduce SCALE=full` wrote figures: their results are first copied from there
to docs/full_size. A figure without results is said not to be trained.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dpsweep.reports.reproduction.claims import FEW
from dpsweep.reports.reproduction.figures.a_fig3 import GAINS
from dpsweep.reports.reproduction.finding import Computed, Finding, Margin, Reproduction, figure_names, find_figure
from dpsweep.reports.reproduction.registry import CLAIMS, MARGINS, reproduction_of_results
from dpsweep.reports.reproduction.results import RESULTS, SUFFIX, TrainingFacts, read_results
from dpsweep.reports.statistics.verdict import CONFIDENCE, Verdict

DOCS = Path(__file__).parents[1]
PAGE, PICTURES, STORED = DOCS / "reproduction.md", DOCS / "figures", DOCS / "full_size"
OVERVIEW = ("<!-- overview: python docs/generators/gallery.py -->\n", "<!-- end of overview -->\n")
MARGIN_TABLE = ("<!-- margins: python docs/generators/gallery.py -->\n", "<!-- end of margins -->\n")
DETAILS = ("<!-- details: python docs/generators/gallery.py -->\n", "<!-- end of details -->\n")
GALLERY = ("<!-- gallery: python docs/generators/gallery.py -->\n", "<!-- end of gallery -->\n")
WIDEST, COLOURS = 1400, 64
DIGEST = "results"
"""The text in a picture that names the SHA-256 of the results that it was drawn from."""

DATA = {
    "adult": "Adult",
    "cifar10": "CIFAR-10",
    "covertype_sample": "Covertype",
    "mnist_4_9": "MNIST 4 against 9",
    "enron": "ENRON",
    "mnist": "MNIST",
    "regression": "made-up records",
    "sst2": "SST-2",
}
NEEDS_GPU = {**dict.fromkeys(("a_fig1", "a_fig2", "a_fig3"), "ResNet20"), "a_fig4": "RoBERTa", "a_fig5": "RoBERTa"}
"""Figures whose model takes days on two cores, and that model."""

GPU = (
    "ResNet20 on CIFAR-10 and RoBERTa-base on SST-2, the networks of Yang et al. 2022, were not run at full size: they "
    "need a GPU. Verdicts on their claims come from a small CNN and linear models of frozen features alone."
)
PAPERS = ("Yang et al. 2022", "Mohapatra et al. 2022", "Bellet's lecture", "Yu et al. 2019", "Yu et al. 2018")
FIRST = "a_price"
"""The figure whose claims come first: what noise costs by a paper's own definitions."""

EASIER = "DP-NSGD is easier to tune than DP-SGD"
"""The claim whose gain is told by range of learning rates."""

MOST_PARTS = 12
"""Quantities of a claim that are written out; of more, the deciding one is."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A figure as it came out, with the facts of its search, None if there was none."""

    name: str
    reproduction: Reproduction
    facts: TrainingFacts | None

    @property
    def table(self) -> str:
        """The data set for readers, or that there is none."""
        return "computed" if self.facts is None else DATA.get(self.facts.account, self.facts.account)


Tests: TypeAlias = list[tuple[Made, Finding]]
Topics: TypeAlias = Mapping[str, Tests]
"""The tests of each claim by topic, in the order of the page."""


def make(name: str) -> Made | None:
    """The figure from its stored results, or from the accountants; None if it was not trained."""
    figure, file = find_figure(name), STORED / f"{name}{SUFFIX}"
    if isinstance(figure, Computed):
        return Made(name=name, reproduction=figure.make(), facts=None)
    if not file.is_file():
        return None
    results = read_results(file)
    return Made(name=name, reproduction=reproduction_of_results(figure, results), facts=results.facts)


def section(name: str, made: Made | None) -> str:
    """The figure's part of the gallery."""
    return "".join(_missing(name) if made is None else _section(made))


def _missing(name: str) -> Iterator[str]:
    yield f"\n### `{name}`\n\n"
    if name in NEEDS_GPU:
        yield f"Untested: {NEEDS_GPU[name]} at full size needs a GPU, and none was there. "
    else:
        yield "Not trained yet at full size. "
    yield f"`make reproduce FIGURE={name} SCALE=full` makes it.\n"


def _section(made: Made) -> Iterator[str]:
    title, facts = made.reproduction.title, made.facts
    yield f"\n### `{made.name}`: {title}\n\n{made.reproduction.source}\n\n"
    if facts is not None:
        yield f"{facts.provenance_sentence} {facts.sizes_sentence}\n\n"
    if made.reproduction.differences:
        yield f"Differs from the paper: {' '.join(made.reproduction.differences)}\n\n"
    yield f"![{title}](figures/{made.name}.png)\n"


def by_topic(figures: Iterable[Made]) -> Topics:
    """The tests of each claim: the gravest first, then paper by paper, claims of our own last."""
    tests = [(made, finding) for made in figures for finding in made.reproduction.findings]
    order = [claim.topic for claim in CLAIMS]
    tests.sort(
        key=lambda test: (
            test[0].name != FIRST,
            test[1].ours,
            PAPERS.index(test[1].paper),
            order.index(test[1].topic) if test[1].topic in order else len(order),
        )
    )
    topics: dict[str, Tests] = {}
    for made, finding in tests:
        topics.setdefault(finding.topic, []).append((made, finding))
    return topics


def overview(topics: Topics) -> str:
    """The counts, a line for each claim of a paper, a line for each of our own, and the claims without a table."""
    papers = {topic: tests for topic, tests in topics.items() if not tests[0][1].ours}
    ours = {topic: tests for topic, tests in topics.items() if topic not in papers}
    untested = [claim.topic for claim in CLAIMS if claim.topic not in topics]
    return "\n".join(
        (
            counts(papers, "claims of the papers"),
            "",
            *_lines(papers),
            "",
            "Claims that no paper makes: those on two methods of a paper, on two other methods. "
            + counts(ours, "claims of our own"),
            "",
            *_lines(ours),
            "",
            f"Without a stored table that has their columns: {'; '.join(untested) or 'none'}. {GPU}",
            "",
            false_verdicts([finding for tests in topics.values() for _, finding in tests]),
            "",
        )
    )


def counts(topics: Topics, name: str) -> str:
    """How many tests have which verdict."""
    every = [finding.verdict for tests in topics.values() for _, finding in tests]
    told = "; ".join(f"**{verdict}** {every.count(verdict)}" for verdict in Verdict if verdict in every)
    return f"{len(topics)} {name}, {len(every)} tests: {told}."


def false_verdicts(findings: Sequence[Finding]) -> str:
    """The number of false verdicts to expect at most."""
    chance = [finding for finding in findings if finding.parts]
    decided = sum(finding.verdict is not Verdict.UNDECIDED for finding in chance)
    most = (1 - CONFIDENCE) * len(chance)
    return (
        f"Chance plays a part in {len(chance)} of these tests, {decided} of them decided. The intervals of a test hold "
        f"jointly with {CONFIDENCE:.0%}, so at most {most:.1f} false verdicts are to be expected among all of them."
    )


def _lines(topics: Topics) -> Iterator[str]:
    yield "| claim | paper | verdict, and the tables that gave it |"
    yield "|---|---|---|"
    for topic, tests in topics.items():
        paper = tests[0][1].paper.replace(" et al.", "")
        yield f"| {_cell(topic)} | {paper} | {tally(tests)} |"


def tally(tests: Tests) -> str:
    """Each verdict on a claim with the tables that gave it."""
    texts: dict[str, list[str]] = {}
    for made, finding in sorted(tests, key=lambda test: list(Verdict).index(test[1].verdict)):
        texts.setdefault(finding.verdict_text, []).append(made.table)
    return "; ".join(
        f"**{verdict}**: " + ", ".join(f"{name} x{many}" if many > 1 else name for name, many in Counter(names).items())
        for verdict, names in texts.items()
    )


def details(topics: Topics) -> str:
    """Every claim once: its criterion, and what each table says of it."""
    return "".join(text for topic, tests in topics.items() for text in _detail(topic, tests))


def _detail(topic: str, tests: Tests) -> Iterator[str]:
    one = tests[0][1]
    ours = " No paper makes this claim." if one.ours else ""
    yield f"\n### {topic}\n\n{one.paper}, {one.where}: {one.claim}{ours} Criterion: {one.criterion}.\n\n"
    yield "| table | verdict | the claim | numbers |\n|---|---|---|---|\n"
    yield from (detail_row(made, finding) for made, finding in tests)
    if topic == EASIER:
        for made, _ in tests:
            yield from _gains(made)


def _gains(made: Made) -> Iterator[str]:
    """The gain by range of learning rates, at the least noise and the most random points."""
    for sheet in made.reproduction.sheets:
        if sheet.caption == GAINS:
            rows = [[item.text for item in row] for row in sheet.rows]
            first = [row[2:] for row in rows if row[:2] == [rows[0][0], str(max(FEW))]]
            yield (
                f"\n{made.table}, `{made.name}`, noise {rows[0][0]}: the gain in points of {max(FEW)} random points "
                "where both grids' learning rates are in this range.\n\n"
            )
            yield f"| {' | '.join(sheet.columns[2:])} |\n{'|---' * len(first[0])}|\n"
            yield from (f"| {' | '.join(row)} |\n" for row in first)


def detail_row(made: Made, finding: Finding) -> str:
    """A test: its table, verdict, margin at which it turns, and numbers."""
    where = f"`{made.name}`" if made.facts is None else f"{made.table}, `{made.name}`"
    return f"| {where} | **{finding.verdict_text}** | {_cell(finding.flip)} | {_cell(numbers(finding))} |\n"


def numbers(finding: Finding) -> str:
    """The quantities with their intervals; of many, the deciding one."""
    decides, shown = finding.decisive_part, finding.numbers
    if decides is not None and len(finding.parts) > MOST_PARTS:
        shown = f"{decides.text}, of {len(finding.parts)} quantities"
    return "; ".join(filter(None, (shown, finding.remark)))


def margin_table() -> str:
    """Every margin and its source."""
    rows = (f"| {_cell(one.range_text)} | {_direction(one)} | {_cell(one.source)} |\n" for one in MARGINS)
    return "".join(("| margin | direction | source |\n|---|---|---|\n", *rows))


def _direction(margin: Margin) -> str:
    if margin.above is None and margin.below is None:
        return "none beside the margin"
    if margin.below is not None:
        return f"below {margin.unit.value_text(margin.below)}"
    return f"above {margin.unit.value_text(margin.above or 0.0)}"


def insert(page: str, marks: tuple[str, str], made: str) -> str:
    """The page with this text between the marks."""
    before, _, rest = page.partition(marks[0])
    return "".join((before, marks[0], "\n", made.strip("\n"), "\n\n", marks[1], rest.partition(marks[1])[2]))


def sections(page: str) -> dict[str, str]:
    """The page's sections of the gallery by figure."""
    made = page.partition(GALLERY[0])[2].partition(GALLERY[1])[0].rstrip("\n") + "\n"
    return {found[2]: found[1] for found in re.finditer(r"(\n### `(\w+)`.*?\n)(?=\n### |\Z)", made, re.DOTALL)}


def results_digest(name: str) -> str:
    """The SHA-256 of a figure's stored results; empty without any."""
    file = STORED / f"{name}{SUFFIX}"
    return sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def draw(made: Made) -> None:
    """Keeps the figure's picture beside the page, in few colours."""
    text = PngInfo()
    text.add_text(DIGEST, results_digest(made.name))
    with Image.open(BytesIO(made.reproduction.drawings[0].png)) as picture:
        ratio = min(1.0, WIDEST / picture.width)
        size = round(picture.width * ratio), round(picture.height * ratio)
        small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        small.quantize(COLOURS).save(PICTURES / f"{made.name}.png", optimize=True, pnginfo=text)


def copy(root: Path) -> None:
    """Copies the results of the figures that were made below this folder at full size."""
    STORED.mkdir(exist_ok=True)
    for name in figure_names():
        if (file := root / name / "full" / RESULTS).is_file():
            shutil.copyfile(file, STORED / f"{name}{SUFFIX}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _order(name: str) -> tuple[str, int, str]:
    """The papers' order: by letter, by the first number, then by name."""
    number = re.search(r"\d+", name)
    return name[0], int(number[0]) if number else 0, name


def main(arguments: list[str]) -> None:
    """Writes the page."""
    for root in arguments:
        copy(Path(root))
    every = {name: make(name) for name in sorted(figure_names(), key=_order)}
    made = [one for one in every.values() if one is not None]
    missing = [name for name, one in every.items() if one is None]
    for one in made:
        draw(one)
    for name in missing:
        (PICTURES / f"{name}.png").unlink(missing_ok=True)
    topics = by_topic(made)
    gallery = "".join(("## The figures\n", *(section(name, one) for name, one in every.items())))
    page = PAGE.read_text(encoding="utf-8")
    for marks, text in (
        (OVERVIEW, overview(topics)),
        (MARGIN_TABLE, margin_table()),
        (DETAILS, details(topics)),
        (GALLERY, gallery),
    ):
        page = insert(page, marks, text)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
