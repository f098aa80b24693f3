"""Writes docs/reproduction.md and the tables in docs/reproduction: the claims, the margins, and every figure.

python docs/generators/gallery.py [REPRODUCTIONS]

Everything is made from the results in docs/full_size, one compressed file a figure, and from the accountants; nothing
is trained. REPRODUCTIONS is where `make reproduce SCALE=full` wrote figures: their results are first copied from there
to docs/full_size. `claims.csv` has a row for each test of a claim on a table, and the page's overview is made of these
rows alone; `gains.csv` has the gain by range of learning rates; `figures.csv` what was trained for each figure.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dpsweep.reports.reproduction.claims import FEW
from dpsweep.reports.reproduction.figures.yang_searches import GAINS
from dpsweep.reports.reproduction.finding import Computed, Finding, Margin, Reproduction, figure_names, find_figure
from dpsweep.reports.reproduction.registry import CLAIMS, MARGINS, reproduction_of_results
from dpsweep.reports.reproduction.results import RESULTS, SUFFIX, TrainingFacts, read_results
from dpsweep.reports.statistics.verdict import CONFIDENCE, Verdict

DOCS = Path(__file__).parents[1]
PAGE, PICTURES, STORED, TABLES = DOCS / "reproduction.md", DOCS / "figures", DOCS / "full_size", DOCS / "reproduction"
OVERVIEW, MARGIN_TABLE, GALLERY = (
    (f"<!-- {name}: python docs/generators/gallery.py -->\n", f"<!-- end of {name} -->\n")
    for name in ("overview", "margins", "gallery")
)
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
PAPERS = ("Yang et al. 2022", "Mohapatra et al. 2022", "Bellet's lecture", "Yu et al. 2019", "Yu et al. 2018")
FIRST = "a_price"
"""The figure whose claims come first: what noise costs by a paper's own definitions."""

EASIER = "DP-NSGD is easier to tune than DP-SGD"
"""The claim whose gain is told by range of learning rates."""

SHORTER = {
    r"holds |a margin of |a limit of | points| on$| on(?=;)": "",
    r"at no margin above [^;]+": "none",
    r"\b0\.0 \+- ": "±",
}
"""Where a claim holds, in fewer words than a figure's page has room for."""

Row: TypeAlias = Mapping[str, str]
"""A line of a table by column."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A figure as it came out, with the facts of its search, None if there was none."""

    name: str
    reproduction: Reproduction
    facts: TrainingFacts | None

    @property
    def data(self) -> str:
        """The data set for readers, or that there is none."""
        return "computed" if self.facts is None else DATA.get(self.facts.account, self.facts.account)


def make(name: str) -> Made | None:
    """The figure from its stored results, or from the accountants; None if it was not trained."""
    figure, file = find_figure(name), STORED / f"{name}{SUFFIX}"
    if isinstance(figure, Computed):
        return Made(name=name, reproduction=figure.make(), facts=None)
    if not file.is_file():
        return None
    results = read_results(file)
    return Made(name=name, reproduction=reproduction_of_results(figure, results), facts=results.facts)


def claim_rows(made: Made) -> list[Row]:
    """The tests of claims on this figure's table."""
    return [_claim_row(made, finding) for finding in made.reproduction.findings]


def _claim_row(made: Made, finding: Finding) -> Row:
    same = (part for part in finding.parts if part.verdict is finding.verdict)
    decides = next(same, finding.parts[0] if finding.parts else None)  # the part that the verdict rests on
    quantity = "" if decides is None else decides.estimate.name.strip()
    known = decides is not None and decides.estimate.has_interval
    return {
        "claim": finding.topic,
        "paper": finding.paper,
        "where": finding.where,
        "made by": "us" if finding.ours else "paper",
        "statement": finding.claim,
        "criterion": finding.criterion,
        "data": made.data,
        "figure": made.name,
        "verdict": finding.verdict_text,
        "holds": finding.flip,
        "chance": "yes" if finding.parts else "no",
        "deciding quantity": quantity,
        "interval": decides.text.removeprefix(quantity).strip() if decides is not None and known else "",
        "numbers": finding.numbers,
        "remark": finding.remark,
    }


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The tests claim by claim: the gravest first, then paper by paper, claims of our own last."""
    known = list(rows)
    order = [claim.topic for claim in CLAIMS]
    known.sort(
        key=lambda row: (
            row["figure"] != FIRST,
            row["made by"] == "us",
            PAPERS.index(row["paper"]),
            order.index(row["claim"]) if row["claim"] in order else len(order),
        )
    )
    claims = list(dict.fromkeys(row["claim"] for row in known))
    return sorted(known, key=lambda row: claims.index(row["claim"]))


def gain_rows(made: Made) -> Iterator[Row]:
    """The gains of DP-NSGD in points by range of learning rates."""
    for sheet in made.reproduction.sheets:
        if sheet.caption == GAINS:
            for noise, points, least, *gains in ([item.text for item in row] for row in sheet.rows):
                for most, gain in zip(sheet.columns[3:], gains, strict=True):
                    if gain:
                        named = {"figure": made.name, "noise multiplier": noise, "random points": points}
                        yield {**named, "lr from": least, "lr to": most.removeprefix("to "), "gain": gain}


def figure_row(made: Made) -> Row:
    """What was trained for a figure, and what differs from the paper."""
    facts: Mapping[str, Any] = {} if made.facts is None else made.facts.to_json()
    trained = {name: _value_text(value) for name, value in facts.items() if name != "versions"}
    named = {"figure": made.name, "title": made.reproduction.title, "source": made.reproduction.source}
    torch = facts.get("versions", {}).get("torch", "")
    return {**named, **trained, "torch": torch, "differs": " ".join(made.reproduction.differences)}


def _value_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


def overview(rows: Sequence[Row]) -> str:
    """The counts, a line for each claim of a paper, a line for each of our own, and the claims without a table."""
    papers, ours = ([row for row in rows if row["made by"] == one] for one in ("paper", "us"))
    untested = [claim.topic for claim in CLAIMS if claim.topic not in {row["claim"] for row in rows}]
    return "\n".join(
        (
            counts(papers, "claims of the papers"),
            *_lines(papers),
            "",
            f"Claims of a paper on two methods, tested on two other methods: {counts(ours, 'claims of our own')}",
            *_lines(ours),
            "",
            f"Without a stored table that has their columns: {'; '.join(untested) or 'none'}.",
            "",
            f"The range of learning rates decides whether {EASIER}. The gain of {max(FEW)} random points in all ranges "
            "of 3 or more learning rates at one noise:",
            "",
            *_ranges(rows),
            "",
            false_verdicts(rows),
            "",
        )
    )


def counts(rows: Sequence[Row], name: str) -> str:
    """How many tests have which verdict."""
    every = Counter(verdict for row in rows for verdict in Verdict if row["verdict"].startswith(verdict))
    told = "; ".join(f"**{verdict}** {every[verdict]}" for verdict in Verdict if verdict in every)
    return f"{len({row['claim'] for row in rows})} {name}, {len(rows)} tests: {told}."


def false_verdicts(rows: Sequence[Row]) -> str:
    """The number of false verdicts to expect at most."""
    chance = [row for row in rows if row["chance"] == "yes"]
    decided = sum(row["verdict"] != Verdict.UNDECIDED for row in chance)
    most = (1 - CONFIDENCE) * len(chance)
    return (
        f"Chance plays a part in {len(chance)} of these tests, {decided} of them decided. The intervals of a test hold "
        f"jointly with {CONFIDENCE:.0%}, so at most {most:.1f} false verdicts are to be expected among all of them."
    )


def _ranges(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row["claim"] == EASIER:
            text = row["remark"].partition(f"best of {max(FEW)} over the ")[2]
            yield f"- {row['data']}, `{row['figure']}`: {re.sub(r' of 3 or more .*? noise| [(].*?[)]', '', text)}."


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for paper in dict.fromkeys(row["paper"] for row in rows):
        yield f"\n| {paper} | verdict and tables |"
        yield "|---|---|"
        for claim in dict.fromkeys(row["claim"] for row in rows if row["paper"] == paper):
            tests = [row for row in rows if row["claim"] == claim]
            yield f"| {_cell(claim)} | {_cell(tally(tests))} |"


def tally(tests: Sequence[Row]) -> str:
    """Each verdict on a claim with the tables that gave it, their deciding intervals, and where the claim holds."""
    texts: dict[str, list[str]] = {}
    for row in sorted(tests, key=lambda row: [row["verdict"].startswith(verdict) for verdict in Verdict], reverse=True):
        texts.setdefault(row["verdict"], []).append(_evidence(row))
    return "; ".join(
        f"**{verdict}**: " + "; ".join(f"{name} x{many}" if many > 1 else name for name, many in Counter(names).items())
        for verdict, names in texts.items()
    )


def _evidence(row: Row) -> str:
    """A table with the numbers behind its verdict; alone if there is no interval."""
    if row["chance"] == "yes" and not row["interval"]:
        return row["data"]
    holds = row["holds"]
    for long, short in SHORTER.items():
        holds = re.sub(long, short, holds)
    text = f"{row['data']}: {row['interval']}" if row["interval"] else row["numbers"]
    return text + f" ({'; '.join(dict.fromkeys(holds.split('; ')))})" * bool(holds)


def margin_table() -> str:
    """Every margin and its source."""
    rows = (f"| {_cell(one.range_text)} | {_direction(one)} | {_cell(one.source)} |\n" for one in MARGINS)
    return "".join(("| margin | direction | source |\n|---|---|---|\n", *rows))


def _direction(margin: Margin) -> str:
    if margin.above is None and margin.below is None:
        return "none"
    if margin.below is not None:
        return f"below {margin.unit.value_text(margin.below)}"
    return f"above {margin.unit.value_text(margin.above or 0.0)}"


def pictures(made: Sequence[Made]) -> str:
    """What differs from the papers, each difference once, and the figures' pictures."""
    different: dict[str, list[str]] = {}
    for one in made:
        for sentence in one.reproduction.differences:
            different.setdefault(sentence, []).append(f"`{one.name}`")
    lines = (f"- {sentence} ({', '.join(names)})\n" for sentence, names in different.items())
    drawn = (f"\n### `{one.name}`\n\n![{one.reproduction.title}](figures/{one.name}.png)\n" for one in made)
    return "".join(("What differs from the papers:\n\n", *lines, *drawn))


def insert(page: str, marks: tuple[str, str], text: str) -> str:
    """The page with this text between the marks."""
    before, _, rest = page.partition(marks[0])
    return "".join((before, marks[0], "\n", text.strip("\n"), "\n\n", marks[1], rest.partition(marks[1])[2]))


def results_digest(name: str) -> str:
    """The SHA-256 of a figure's stored results; empty without any."""
    file = STORED / f"{name}{SUFFIX}"
    return sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def draw(made: Made) -> None:
    """Keeps the figure's picture beside the page, in few colours."""
    text = PngInfo()
    text.add_text(DIGEST, results_digest(made.name))
    with Image.open(BytesIO(made.reproduction.drawing.png)) as picture:
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


def read_table(name: str) -> list[Row]:
    """The rows of a table in docs/reproduction."""
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write_table(name: str, rows: Sequence[Row]) -> None:
    """Writes a table in docs/reproduction; a row may lack columns."""
    with (TABLES / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, dict.fromkeys(column for row in rows for column in row), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _order(name: str) -> tuple[str, int, str]:
    """The papers' order: by letter, by the first number, then by name."""
    number = re.search(r"\d+", name)
    return name[0], int(number[0]) if number else 0, name


def main(arguments: list[str]) -> None:
    """Writes the tables and the page."""
    for root in arguments:
        copy(Path(root))
    every = {name: make(name) for name in sorted(figure_names(), key=_order)}
    made = [one for one in every.values() if one is not None]
    for one in made:
        draw(one)
    for name in every.keys() - {one.name for one in made}:
        (PICTURES / f"{name}.png").unlink(missing_ok=True)
    write_table("claims", in_order(row for one in made for row in claim_rows(one)))
    write_table("gains", [row for one in made for row in gain_rows(one)])
    write_table("figures", [figure_row(one) for one in made])
    page = PAGE.read_text(encoding="utf-8")
    for marks, text in (
        (OVERVIEW, overview(read_table("claims"))),
        (MARGIN_TABLE, margin_table()),
        (GALLERY, pictures(made)),
    ):
        page = insert(page, marks, text)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
