"""Writes the overview, summary and gallery of docs/reproduction.md: every figure's picture, claims and verdicts.

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

from dpsweep.reports.reproduction.finding import Computed, Finding, Reproduction, figure_names, find_figure
from dpsweep.reports.reproduction.results import RESULTS, SUFFIX, TrainingFacts, read_results
from dpsweep.reports.statistics.verdict import Verdict

DOCS = Path(__file__).parents[1]
PAGE, PICTURES, STORED = DOCS / "reproduction.md", DOCS / "figures", DOCS / "full_size"
OVERVIEW = ("<!-- overview: python docs/generators/gallery.py -->\n", "<!-- end of overview -->\n")
SUMMARY = ("<!-- summary: python docs/generators/gallery.py -->\n", "<!-- end of summary -->\n")
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

UNTESTED = (
    "ResNet20 on CIFAR-10 and RoBERTa-base on SST-2, the networks of Yang et al. 2022, at full size. They need a GPU, "
    "and none was there. Verdicts on their claims come from a small CNN and linear models of frozen features alone."
)

HEADS = {Verdict.HOLDS: "Right", Verdict.REFUTED: "Wrong on these data", Verdict.UNDECIDED: "Undecided"}
FIGURES = re.compile(r"^(?P<author>\w+).*?(?P<year>, lecture| \d{4}),? ?(?P<where>(?:Figures?|Table|Section) [\w. ]+)?")


@dataclass(frozen=True, kw_only=True)
class Made:
    """A figure as it came out, with the facts of its search, None if there was none."""

    name: str
    reproduction: Reproduction
    facts: TrainingFacts | None

    @property
    def where(self) -> str:
        """The figure, and its data set for readers if it has one."""
        data = "" if self.facts is None else f" on {DATA.get(self.facts.account, self.facts.account)}"
        return f"`{self.name}`{data}"

    @property
    def data(self) -> str:
        """The data set for readers before an interval; empty if it has none."""
        return "" if self.facts is None else f"{DATA.get(self.facts.account, self.facts.account)}: "


Topics: TypeAlias = Mapping[tuple[str, str], list[tuple[Made, Finding]]]
"""The findings on each claim by paper and topic, with the figures that they are from."""


def make(name: str) -> Made | None:
    """The figure from its stored results, or from the accountants; None if it was not trained."""
    figure, file = find_figure(name), STORED / f"{name}{SUFFIX}"
    if isinstance(figure, Computed):
        return Made(name=name, reproduction=figure.make(), facts=None)
    if not file.is_file():
        return None
    results = read_results(file)
    return Made(name=name, reproduction=figure.make(results), facts=results.facts)


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
    yield f"![{title}](figures/{made.name}.png)\n\n| claim | numbers | verdict |\n|---|---|---|\n"
    for finding in made.reproduction.findings:
        yield f"| {' | '.join((_cell(finding.claim), _cell(finding.numbers), f'**{finding.verdict_text}**'))} |\n"


def by_topic(figures: Iterable[Made]) -> Topics:
    """The findings of all figures by paper and topic."""
    topics: dict[tuple[str, str], list[tuple[Made, Finding]]] = {}
    for made in figures:
        for finding in made.reproduction.findings:
            topics.setdefault((paper(made.reproduction.source), finding.topic), []).append((made, finding))
    return topics


def overview(topics: Topics) -> str:
    """One line for each claim: the paper, how many tests have which verdict, and the interval of the first one."""
    head = "| claim | paper | verdict at full size | interval of the first test |\n|---|---|---|---|\n"
    return head + "".join(_line(topic, author, found) for (author, topic), found in topics.items())


def _line(topic: str, author: str, found: list[tuple[Made, Finding]]) -> str:
    short = author.replace(" et al.", "").replace("'s lecture", "")
    where = _where(found).replace("Figures ", "").replace("Figure ", "").replace(" to ", "-").replace(" and ", ", ")
    figures = f"Fig. {where}" if where[:1].isdigit() else where
    places = f"{short}, {figures}" if where else short
    decides = found[0][1].decisive_part
    interval = "computed" if decides is None else f"{found[0][0].data}{decides.text}"
    return f"| {_cell(topic)} | {places} | {tally([one for _, one in found])} | {_cell(interval)} |\n"


def tally(found: Sequence[Finding]) -> str:
    """The verdicts on a claim, with the number of tests for each where there are several.

    >>> one, two = (Finding(topic="", claim="", criterion="", numbers="", verdict=one) for one in list(Verdict)[:2])
    >>> tally([one]), tally([one, one]), tally([two, one, one])
    ('**holds**', '**holds** (2 of 2)', '**holds** (2), **refuted** (1)')
    """
    counts = Counter(one.verdict for one in found)
    if len(counts) == 1:
        return f"**{found[0].verdict_text if len(found) == 1 else found[0].verdict}**" + _of(len(found))
    return ", ".join(f"**{verdict}** ({counts[verdict]})" for verdict in Verdict if counts[verdict])


def _of(count: int) -> str:
    return f" ({count} of {count})" if count > 1 else ""


def summary(topics: Topics) -> str:
    """Every verdict and its interval in a table, then what was right and wrong by paper."""
    rows = (_row(topic, author, found) for (author, topic), found in topics.items())
    head = "| claim | paper | verdict at full size | interval that decides it |\n|---|---|---|---|\n"
    return "".join((head, *rows, "\n### What the papers got right, and what not\n", *_words(topics)))


def entry(made: Made, finding: Finding) -> tuple[str, str]:
    """One verdict of the summary, and what decides it."""
    decides = "computed, without chance" if finding.decisive_part is None else finding.decisive_part.text
    return f"{made.where}: **{finding.verdict_text}**", _cell(decides)


def paper(source: str) -> str:
    """The paper by its first author and year."""
    found = FIGURES.match(source)
    if found is None:
        return source
    return f"{found['author']}'s lecture" if "lecture" in found["year"] else f"{found['author']} et al.{found['year']}"


def _row(topic: str, author: str, found: list[tuple[Made, Finding]]) -> str:
    entries = [entry(made, finding) for made, finding in found]
    verdicts, decides = ("<br>".join(column) for column in zip(*entries, strict=True))
    return f"| {_cell(topic)} | {', '.join(filter(None, (author, _where(found))))} | {verdicts} | {decides} |\n"


def _where(found: list[tuple[Made, Finding]]) -> str:
    """The paper's figures that the claim was read from."""
    places = [match["where"] for made, _ in found if (match := FIGURES.match(made.reproduction.source))]
    return "; ".join(place for place in dict.fromkeys(places) if place)


def _words(topics: Topics) -> Iterator[str]:
    """A list for each paper: its claims by verdict, and the data on which each has it."""
    for author in dict.fromkeys(author for author, _ in topics):
        yield f"\n{author}:\n\n"
        for verdict, head in HEADS.items():
            own = [
                f"{_cell(topic)} ({places})"
                for (one, topic), found in topics.items()
                if one == author and (places := _places(found, verdict))
            ]
            if own:
                yield f"- {head}: {'; '.join(own)}.\n"


def untrained(names: Iterable[str]) -> str:
    """What the summary cannot say anything on."""
    waiting = [f"`{name}`" for name in names if name not in NEEDS_GPU]
    words = f"Not trained yet at full size, so without a verdict: {', '.join(waiting)}.\n\n" if waiting else ""
    return f"\n{words}Untested: {UNTESTED}\n"


def _places(found: list[tuple[Made, Finding]], verdict: Verdict) -> str:
    own = [(made, finding.scope) for made, finding in found if finding.verdict is verdict]
    return ", ".join(f"{made.where} {scope}".strip() for made, scope in own)


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
    page = insert(PAGE.read_text(encoding="utf-8"), OVERVIEW, overview(topics))
    page = insert(page, SUMMARY, summary(topics) + untrained(missing))
    gallery = "".join(("## What came out\n", *(section(name, one) for name, one in every.items())))
    PAGE.write_text(insert(page, GALLERY, gallery), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
