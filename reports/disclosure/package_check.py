"""`dpsweep check PACKAGE`: recomputes what a release from somebody else claims.

A release carries a program that does this, and that program is its sender's. Here the program of the reader's own
installation reads the package's data, in a process of its own with a limit of time and memory, whose imports do not
depend on the current folder. Nothing of the package is imported or run; links are not followed.

A statement's page is read back into its values, and written again from them. A page that is not what the template makes
of its own values may show something else than what it contains: by a comment, a style, a script or a hidden element. So
only a page that is written again byte by byte is read at all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dpsweep
from dpsweep.accounting.errors import BadInput, DpsweepError, ExitCode, turn_read_errors_into_refusal
from dpsweep.accounting.files import refuse_link
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up
from dpsweep.accounting.printing import print_line
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.reports.content.facts import sum_in_exact_decimals
from dpsweep.reports.content.formatting import count_text
from dpsweep.reports.pages.comparison import MEMBER, page_of_record
from dpsweep.reports.pages.page_memory import COMPARISON, NUMBERS
from dpsweep.reports.pages.released_package import (
    PRICE_FILE,
    PROGRAM_FILE,
    STATEMENT_FILE,
    STATEMENT_PDF,
    price_check_program_text,
)
from dpsweep.reports.pages.templates import fill_template
from dpsweep.reports.recomputation.price_check import FAILS, HOLDS, NOT_RECOMPUTED, UNREADABLE, read_json
from dpsweep.reports.statement.one_page import SIZES, OnePage, StatementRow
from dpsweep.reports.statement.released_claim import ReleasedModel

SECONDS, BYTES = 900, 8 << 30
LONGEST = 1 << 22
"""The largest page or program that is read, in bytes."""
AMOUNTS = {"epsilon": epsilon_text_rounded_up, "delta": delta_text_rounded_up}
TOLD = ("interval", "score")
"""What is told of the score of a selected point, in the record of a page and in that of a release."""
LARGEST_MODEL = 64 << 30
"""The largest model that is read, in bytes."""

CHILD = """
import sys
from contextlib import suppress
sys.path.append(sys.argv[1])
with suppress(ImportError, ValueError, OSError):
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from dpsweep.reports.recomputation.price_check import main
sys.exit(main(sys.argv[3:]))
"""


class ClaimFails(DpsweepError):
    """A claim of a release is below what its event costs, or its files contradict each other."""

    exit_code = ExitCode.CLAIM_FAILS


class ClaimNotRecomputed(DpsweepError):
    """Nothing of a release fails, and its other pages were not compared, or a part was not recomputed."""

    exit_code = ExitCode.NOT_RECOMPUTED


def check_package(arguments: Sequence[str]) -> None:
    """Prints what holds of a package and what does not; of a package of several sweeps, for each of them.

    Raises `ClaimFails` if something does not hold, `BadInput` if a file of the package cannot be read, and otherwise
    `ClaimNotRecomputed`: each release has pages that are not compared, and they may say anything.
    """
    if len(arguments) != 1:
        raise BadInput("Expected dpsweep check PACKAGE: the folder of a release.")
    folder = Path(arguments[0]).absolute()
    if (refuse_link(folder) / NUMBERS[COMPARISON]).is_file():
        _check_comparison(folder)
    else:
        _check_release(folder)


def _check_release(folder: Path) -> None:
    """Checks the release of one sweep."""
    for name in (PRICE_FILE, "report.json", STATEMENT_FILE):
        if not refuse_link(folder).is_dir() or not refuse_link(folder / name).is_file():
            raise BadInput(
                f"Expected {folder} to be the folder of a release with a {name}: without it nothing is claimed that "
                "can be recomputed."
            )
        (folder / name).open("rb").close()  # missing rights are an error of the disk
    codes = {_print_price_check_and_return_code(folder)}
    for code, sentence in (*_statement_verdicts(folder), *_program_verdicts(folder)):
        print_line(sentence)
        codes.add(code)
    print_line(_uncompared_files_sentence(folder))
    if FAILS in codes:
        raise ClaimFails(f"The release in {folder} does not hold: see above.")
    # report.html is in each release and is not compared: its sender may have written anything there
    raise ClaimNotRecomputed(f"Nothing of the release in {folder} fails. Rely on the lines that hold alone: see above.")


def _check_comparison(folder: Path) -> None:
    """Checks each sweep's release in a package of several, and that their common page says what these say."""
    with turn_read_errors_into_refusal(str(folder)):
        record = read_json(folder / NUMBERS[COMPARISON])
        members = [folder / MEMBER.format(number) for number in range(1, len(record["sweeps"]) + 1)]
    codes = set()
    for member in members:
        print_line(f"{member.name}:")
        try:
            _check_release(member)
        except ClaimNotRecomputed:
            pass
        except ClaimFails:
            codes.add(FAILS)
    with turn_read_errors_into_refusal(str(folder)):
        verdicts = [*_comparison_verdicts(folder, record, members)]
    print_line(f"{folder.name}:")
    holds = (
        f"holds: it is what this version's template makes of {NUMBERS[COMPARISON]}, which has the account, rule, price "
        "and told score of each sweep's release, and no total below the sum of its sweeps"
    )
    for code, sentence in verdicts or [(HOLDS, holds)]:
        print_line(f"{COMPARISON}: {sentence}")
        codes.add(code)
    print_line(
        "not compared: the totals with the curator's ledger, and the maps, whose scores are in each sweep's report.json"
    )
    if FAILS in codes:
        raise ClaimFails(f"The releases in {folder} do not hold: see above.")
    raise ClaimNotRecomputed(f"Nothing in {folder} fails. Rely on the lines that hold alone: see above.")


def _comparison_verdicts(folder: Path, record: Any, members: Sequence[Path]) -> Iterator[tuple[int, str]]:
    """What the page of several sweeps says otherwise than the release of each."""
    if page_of_record(record) != _read_text_of_limited_size(folder / COMPARISON):
        yield FAILS, f"does not hold: this version's template does not write this page from {NUMBERS[COMPARISON]}"
    sums: dict[tuple[str, str], list[float]] = {}
    for number, (row, member) in enumerate(zip(record["sweeps"], members, strict=True), start=1):
        report = read_json(member / "report.json")
        facts, best = report["facts"], (report["best"] or [{}])[0]
        pairs = {
            "number": (row["number"], number),
            "account": (row["account"], report["title"]),
            "rule": (row["rule"], read_json(member / PRICE_FILE)["rule"]),
            **{name: (row[name], facts[f"honest_{name}"]) for name in AMOUNTS},
            **{name: ((row["best"] or {}).get(name, ""), best.get(name, "")) for name in TOLD},
        }
        for name, (shown, released) in pairs.items():
            if shown != released:
                yield FAILS, f"does not hold: the {name} of sweep {number} is not that of its release"
        for name in AMOUNTS:
            sums.setdefault((report["title"], name), []).append(row[name]["value"])
    for (account, name), values in sums.items():
        (fact,) = [total[name] for total in record["totals"] if total["account"] == account]
        if fact["text"] != AMOUNTS[name](fact["value"]):
            yield FAILS, f"does not hold: the {name} charged to {account} has two values"
        if fact["value"] < sum_in_exact_decimals(values):
            told = f"{name} {fact['text']} is charged to {account}, less than the sum of its sweeps"
            yield NOT_RECOMPUTED, f"not recomputed: {told}, as where an account adds divergences"


def _print_price_check_and_return_code(folder: Path) -> int:
    """Prints the verdicts of the program on a release, and returns its exit code."""
    home = str(Path(str(dpsweep.__file__)).parents[1])
    command = [sys.executable, "-P", "-c", CHILD, home, str(BYTES), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS, cwd=sys.prefix)
    except subprocess.TimeoutExpired:
        print_line(f"price: not recomputed: it takes more than {SECONDS} seconds")
        return NOT_RECOMPUTED
    lines = done.stdout.decode("utf-8", errors="replace").splitlines()
    if done.returncode not in (HOLDS, FAILS, NOT_RECOMPUTED) or not lines:
        raise BadInput(lines[0] if done.returncode == UNREADABLE and lines else f"Expected {folder} to be a release.")
    for line in lines:
        print_line(line)
    return done.returncode


def _statement_verdicts(folder: Path) -> Iterator[tuple[int, str]]:
    """Whether the statement shows the hashes of report.json and of the model, and the claim, and no others."""
    path = folder / STATEMENT_FILE
    page, model = read_statement_page(_read_text_of_limited_size(path)), _released_model(folder)
    if page is None:
        yield FAILS, f"{path.name}: does not hold: this version's template does not write this page from its text"
        return
    with turn_read_errors_into_refusal(str(folder)):
        facts = read_json(folder / "report.json")["facts"]
        epsilon, delta = (float(facts[name]["value"]) for name in ("honest_epsilon", "honest_delta"))
        claim = epsilon_text_rounded_up(epsilon), delta_text_rounded_up(delta)
        report = sha256((folder / "report.json").read_bytes()).hexdigest()
    words = " ".join([page.title, page.about, page.claim, *(" ".join([row.text, *row.points]) for row in page.rows)])
    agrees = (page.epsilon, page.delta) == claim and f"({', '.join(claim)})-" in page.claim
    expected = {
        "the SHA-256 of report.json": _codes_with_label(page, "Report") == [report],
        "the claim of report.json": agrees,
        "that claim alone": BEFORE_EPSILON.strip() not in words and words.count(")-differential") == 1,
        ("no model" if model is None else f"the SHA-256 of {model.file}"): _codes_with_label(page, "Model")
        == ([] if model is None else [model.sha256]),
        "those hashes alone": not re.search(r"[0-9a-fA-F]{64}", words),
    }
    missing = [name for name, holds in expected.items() if not holds]
    if missing:
        yield FAILS, f"{path.name}: does not hold: it does not have {' and '.join(missing)}"
    else:
        hashed = "" if model is None else " and model hash"
        compared = "" if model is None else "; the ledger was not asked whether another model was released"
        yield (
            HOLDS,
            f"{path.name}: holds: hash of report.json, epsilon{hashed} are those of this release; scores on it were "
            f"not checked{compared}",
        )


def _codes_with_label(page: OnePage, label: str) -> list[str]:
    """The hashes in the rows with this label; the words beside them may change from version to version."""
    return [row.code for row in page.rows if row.label.strip().casefold() == label.casefold()]


def _released_model(folder: Path) -> ReleasedModel | None:
    """The model in a package; raises `BadInput` for one that would take too long to read."""
    for path in (folder / name for name in OUTPUTS):
        if path.is_file() and path.stat().st_size > LARGEST_MODEL:
            raise BadInput(f"Expected {path} to be a file of at most {LARGEST_MODEL >> 30} GiB.")
    return ReleasedModel.from_release_folder(folder)


def _uncompared_files_sentence(folder: Path) -> str:
    """The sentence on the files of which nothing was compared."""
    model = [name for name in OUTPUTS if (folder / name).is_file() and not (folder / name).is_symlink()][:1]
    checked = {"report.json", PRICE_FILE, PROGRAM_FILE, STATEMENT_FILE, *model}
    names = sorted(path.name for path in folder.iterdir() if path.name not in checked)
    seen = " and ".join(name for name in names if name in ("report.html", STATEMENT_PDF)) or "other pages"
    named, files = "model" if model else "hash of report.json", count_text(len(names), "file")
    return (
        f"checked: price, claim, {named}; not compared: everything you can see on {seen}, what else report.json and "
        f"{STATEMENT_FILE} say, and {files} in all"
    )


def _program_verdicts(folder: Path) -> Iterator[tuple[int, str]]:
    """Whether the package's program is the one of this version, which was run here in its place."""
    path = folder / PROGRAM_FILE
    if not path.exists() and not path.is_symlink():
        return
    if (
        sha256(_read_text_of_limited_size(path).encode()).hexdigest()
        != sha256(price_check_program_text().encode()).hexdigest()
    ):
        yield NOT_RECOMPUTED, f"{path.name}: not that of this version of dpsweep: do not run it"


def _read_text_of_limited_size(path: Path) -> str:
    if refuse_link(path).is_file() and path.stat().st_size <= LONGEST:
        return path.read_bytes().decode("utf-8", errors="replace")
    raise BadInput(f"Expected {path} to be a file of at most {LONGEST >> 20} MiB.")


PLACES = {"h1": "title", "p about": "about", "p price": "epsilon", "small": "delta", "p claim": "claim"}
"""Where the values stand outside of the rows, by element and class."""
PARTS = ("dt", "dd", "li", "code")
"""The elements of a row."""
BEFORE_EPSILON, BEFORE_DELTA = "ε ≤ ", "at δ = "


def read_statement_page(text: str) -> OnePage | None:
    """The values of a statement's page; None if the template of this version does not write this page from them."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    page = reader.page
    return page if any(fill_template("statement.html.j2", page=page, size=size) == text for size in SIZES) else None


class _Reader(HTMLParser):
    """Collects the text of each place; whatever else is in a page is not written again."""

    def __init__(self) -> None:
        super().__init__()
        self._place = ""
        self._values: dict[str, str] = {}
        self._rows: list[dict[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        in_row = tag if tag in PARTS else ""
        self._place = PLACES.get(" ".join([tag, *(str(value) for _, value in attrs)]), in_row)
        if tag == "dt" or (in_row and not self._rows):
            self._rows.append({})
        if in_row:
            self._rows[-1].setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._place = ""

    def handle_data(self, data: str) -> None:
        if self._place in PLACES.values():
            self._values[self._place] = self._values.get(self._place, "") + data
        elif self._place:
            self._rows[-1][self._place][-1] += data

    @property
    def page(self) -> OnePage:
        """The values that were collected; those that are missing are empty."""
        title, about, epsilon, delta, claim = (self._values.get(place, "") for place in PLACES.values())
        rows = (
            StatementRow(
                label="".join(row.get("dt", ())),
                text="".join(row.get("dd", ())),
                points=tuple(row.get("li", ())),
                code="".join(row.get("code", ())),
            )
            for row in self._rows
        )
        return OnePage(
            title=title,
            about=about,
            epsilon=epsilon.removeprefix(BEFORE_EPSILON) if delta else "",
            delta=delta.removeprefix(BEFORE_DELTA),
            claim=claim,
            rows=tuple(rows),
        )
