"""The live page of a sweep: a file in its folder that refreshes itself, and that `dpsweep watch` reads.

The file is an HTML document that loads nothing, with the value that it shows as JSON inside: whoever reads the folder
reads one file, which is whole at any time. It says what the terminal says (`running_sweep`), and nothing is made from
it. It is for the curator alone, as the folder is, and can be written again at any time, so it is not flushed, and a
full disk costs the sweep nothing. It is written again at least every `BEAT_SECONDS`: a page that is older was left by a
coordinator that is no longer alive, and says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

import dpsweep.reports
from dpsweep.accounting.codec import Stored
from dpsweep.accounting.durable_files import PRIVATE, mode_with_group
from dpsweep.accounting.errors import DAMAGE, BadInput, exception_as_short_line
from dpsweep.accounting.printing import escape_invisible_characters
from dpsweep.accounting.records.sweep_folder import LIVE_PAGE
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.formatting import duration_text
from dpsweep.sweeper.progress.running_sweep import LAST, CellState, LiveCell, LivePanel, RunningSweep, SweepPhase

PAGE_SECONDS, BEAT_SECONDS = 2.0, 10.0
"""The page is written at most and at least so often while the coordinator is alive; a browser reads it as often."""

DEAD_SECONDS = 60
"""The age in seconds from which a page has no coordinator."""

_BEGIN, _END = '<script type="application/json" id="sweep">', "</script>"


@dataclass(frozen=True, kw_only=True)
class LiveFile(Stored):
    """What the page shows: the sweep at the moment `written`, which began at `began`, both in seconds since 1970.

    `hides` says that the rule shows the winner alone, `command` goes on with a sweep that stopped, and `page` is the
    path of the curator's page below the folder, empty if none was asked for.
    """

    account: str
    plan: str
    hides: bool
    command: str
    page: str
    began: float
    written: float
    sweep: RunningSweep

    @classmethod
    def read(cls, folder: Path) -> LiveFile:
        """The file in a sweep's folder; raises `BadInput` if there is none, or none that the page wrote."""
        path = folder / LIVE_PAGE
        try:
            content = path.read_text().partition(_BEGIN)[2].partition(_END)[0]
            return cls.from_json(json.loads(content))
        except (FileNotFoundError, NotADirectoryError):
            raise BadInput(
                f"Expected {folder} to be a sweep's folder with {LIVE_PAGE}, which a sweep writes when it begins."
            ) from None
        except (OSError, *DAMAGE) as cause:
            raise BadInput(f"Expected {path} to be a live page, got {exception_as_short_line(cause)}.") from cause


@dataclass(kw_only=True)
class LivePage:
    """The writer of a sweep's page; what it does not say of a sweep follows from the plan and the command."""

    folder: Path
    account: str
    plan: str
    hides: bool
    command: str
    page: str
    _began: float = field(default_factory=time.time)
    _last: tuple[RunningSweep, float] | None = None

    @property
    def path(self) -> Path:
        """The file's path."""
        return self.folder / LIVE_PAGE

    def write_if_due(self, sweep: RunningSweep, now: float) -> None:
        """Writes the page if the sweep looks otherwise than before, or as a sign of life; at once at a new phase."""
        if self._last is not None and sweep.phase is self._last[0].phase:
            age = now - self._last[1]
            if age < (BEAT_SECONDS if sweep == self._last[0] else PAGE_SECONDS):
                return
        self._last = (sweep, now)
        file = LiveFile(
            account=self.account,
            plan=self.plan,
            hides=self.hides,
            command=self.command,
            page=self.page,
            began=self._began,
            written=time.time(),
            sweep=replace(sweep, ended=()),
        )
        with suppress(OSError):  # a full disk must not end a sweep because nobody can watch it
            _write_in_one_rename(self.path, live_page_html(file).encode())


def _write_in_one_rename(path: Path, content: bytes) -> None:
    """Writes a file that its owner or group may read, without waiting for the disk."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode_with_group(path, PRIVATE))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def ended_sentence(file: LiveFile) -> str:
    """Where the results of a sweep that is over are, or how one that stopped goes on; empty while it runs."""
    if file.sweep.phase is SweepPhase.ENDED:
        return "The sweep is over."
    return f"The sweep is {file.sweep.phase.value}. The same command goes on: {file.command}" if is_last(file) else ""


def dead_sentence(file: LiveFile) -> str:
    """That the coordinator is gone, and how the sweep goes on."""
    return (
        "The coordinator of this sweep is not alive: it was killed, or its machine was switched off. What began stays "
        f"charged; the same command goes on: {file.command}"
    )


def is_last(file: LiveFile) -> bool:
    """Whether the coordinator wrote the page for the last time."""
    return file.sweep.phase in LAST


def live_page_html(file: LiveFile) -> str:
    """The page as one document."""
    sweep = file.sweep
    stored = json.dumps(file.to_json(), allow_nan=False).replace("<", "\\u003c")
    title = f"{file.account}, plan {file.plan}: {sweep.phase.value}"
    scores = f'<p class="note scores">{_text(sweep.scores)}</p>' if sweep.panels else ""
    style_of_all_pages = (Path(dpsweep.reports.__path__[0]) / "templates" / "style.css.j2").read_text()
    parts = [*_header_parts(file), scores, *map(_panel_html, sweep.panels), *_latest_parts(file)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{_CONTENT_POLICY}{_refresh(file)}<style>{style_of_all_pages}{_OWN_STYLE}</style></head>\n<body>"
        f'<div class="banner"><p>{_text(Audience.CURATOR.banner)}</p></div>\n'
        f"{''.join(parts)}\n{_BEGIN}{stored}{_END}\n{'' if is_last(file) else _AGE_SCRIPT}</body></html>\n"
    )


_CONTENT_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
)


def _refresh(file: LiveFile) -> str:
    """A page whose sweep is over leads to the curator's page; one that stopped may go on some day."""
    if file.sweep.phase is not SweepPhase.ENDED:
        return f'<meta http-equiv="refresh" content="{BEAT_SECONDS if is_last(file) else PAGE_SECONDS:.0f}">'
    return f'<meta http-equiv="refresh" content="0; url={_text(file.page)}">' if file.page else ""


def _header_parts(file: LiveFile) -> Iterator[str]:
    """The title, what the sweep does, its bar, and its numbers."""
    sweep = file.sweep
    dead = f'<p class="alarm" id="dead" hidden>{_text(dead_sentence(file))}</p>' if not is_last(file) else ""
    yield f"<header><h1>{_text(file.account)}, plan {_text(file.plan)}</h1>{dead}</header><main>"
    if sentence := ended_sentence(file):
        link = f' <a href="{_text(file.page)}">Its page</a>' if sweep.phase is SweepPhase.ENDED and file.page else ""
        yield f'<p class="now">{_text(sentence)}{link}</p>'
    else:
        yield f'<p class="now">{_text(_DOT.join(filter(None, (sweep.phase.value, sweep.time_left))))}</p>'
    if sweep.share is not None:
        yield f'<progress max="1" value="{sweep.share:.4f}">{sweep.share:.0%}</progress>'
    numbers = (f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in _numbers(file))
    yield f"<dl>{''.join(numbers)}</dl>"
    if file.hides:
        yield f'<p class="note">{_text(_HIDES)}</p>'


_DOT = " \N{MIDDLE DOT} "

_HIDES = (
    "The rule of this search shows its winner alone, so this page shows neither tries nor scores; the time is the mean "
    "over all draws."
)


def _numbers(file: LiveFile) -> Iterator[tuple[str, str]]:
    """The numbers of the page with their names."""
    sweep = file.sweep
    for name, one in (("runs ended", sweep.runs), ("steps", sweep.steps), ("records with features", sweep.features)):
        if one is not None:
            yield name, f"{one.done} of {one.total}"
    if sweep.activity != sweep.phase.value and sweep.features is None and sweep.activity:
        yield "now", sweep.activity
    yield "notes", _DOT.join(sweep.remarks)
    if not file.hides:  # it grows with the number of tries
        yield "elapsed", duration_text(max(0.0, file.written - file.began))
    yield "written at", time.strftime("%H:%M:%S", time.localtime(file.written))


def _panel_html(panel: LivePanel) -> str:
    """A map as a table; the shade of a cell repeats its number."""
    name, corner = _text(panel.name), _text(" \\ ".join(filter(None, (panel.down, panel.across))))
    heads = "".join(f'<th scope="col">{_text(column)}</th>' for column in panel.columns)
    rows = "".join(
        f'<tr><th scope="row">{_text(row)}</th>{"".join(map(_cell_html, cells))}</tr>'
        for row, cells in zip(panel.rows, panel.cells, strict=False)
    )
    return (
        f'<section><h2>{name}</h2><div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f'<table class="live" style="--columns:{len(panel.columns)}">'
        f'<thead><tr><th scope="col">{corner}</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def _cell_html(cell: LiveCell) -> str:
    if cell.shade is None:
        return f'<td class="{cell.state.value} word">{_text(_CELL_WORDS.get(cell.state, cell.state.value))}</td>'
    return f'<td class="{cell.state.value}" style="--s:{cell.shade:.2f}">{_text(cell.text)}</td>'


_CELL_WORDS = {CellState.ABSENT: "", CellState.WAITING: "\N{MIDDLE DOT}"}
"""What stands in cells that no word describes."""


def _latest_parts(file: LiveFile) -> Iterator[str]:
    """How the last trials ended, and what the page is."""
    if file.sweep.latest:
        lines = "".join(f"<li>{_text(line)}</li>" for line in reversed(file.sweep.latest))
        yield f'<section><h2>Latest</h2><ul class="note">{lines}</ul></section>'
    watch = "This page reloads itself while the sweep runs; dpsweep watch prints the same in a terminal."
    yield f'</main><footer class="screen">{_text(watch)}</footer>'


def _text(text: str) -> str:
    return escape(escape_invisible_characters(text))


_OWN_STYLE = """
.now{font-size:1.6rem;font-weight:650;max-width:none;margin:1.75rem 0 .6rem;overflow-wrap:anywhere}
progress{width:100%;height:.8rem;accent-color:var(--accent)}
dl{display:flex;flex-wrap:wrap;gap:.6rem 2.5rem;margin:1rem 0}
dt{color:var(--muted);font-size:.8125rem}dd{margin:0;font-weight:600}
table.live{table-layout:fixed;width:100%;min-width:calc(6rem + var(--columns)*3.1rem)}
table.live td,table.live th{padding:.45rem .15rem;border:1px solid var(--line);text-align:center;font-size:.875rem}
table.live th:first-child{width:6rem;font-size:.75rem;overflow-wrap:anywhere}table.live td.word{font-size:.6875rem}
td.finished{background:color-mix(in srgb,var(--accent) calc(6% + 26%*var(--s)),var(--paper))}
td.waiting,td.absent{color:var(--muted)}td.running{outline:2px solid var(--accent);outline-offset:-2px}
"""

_AGE_SCRIPT = (
    "<script>{const s=JSON.parse(document.getElementById('sweep').textContent);"
    f"const dead=Date.now()/1000-s.written>{DEAD_SECONDS};document.getElementById('dead').hidden=!dead;"
    "document.querySelector('.now').hidden=dead}</script>"
)
