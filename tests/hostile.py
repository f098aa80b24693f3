"""Hostile values for every place of a stored file, and a ledger that says of them that they were paid for."""

from __future__ import annotations

import copy
import json
import math
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dpsweep.accounting.chain.hash_chain import digest_of_row
from dpsweep.accounting.records.plan import Plan, Trial

DEEP = "@nested without end@"
CANARY = "canary_of_hostile_folders"
"""A module whose import is an alarm."""

SCRIPT = "<script>alert('canary')</script>"
VALUES: tuple[Any, ...] = (
    {"_target_": "os.system", "command": "touch canary"},
    {"_target_": "subprocess.run", "args": ["touch", "canary"]},
    {"_target_": "builtins.exec", "_args_": ["open('canary', 'w')"]},
    {"_target_": f"{CANARY}.Bait"},
    {"_target_": f"{CANARY}.Bait", "_partial_": True},
    {"kind": f"{CANARY}.Bait"},
    {"kind": "final", "rule": {"_target_": f"{CANARY}.Bait"}},
    {"kind": "addition"},
    {"kind": "torch_dataset", "source": {"_target_": f"{CANARY}.Bait"}},
    f"{CANARY}.Bait",
    "${oc.create:{_target_:os.system,command:'touch canary'}}",
    "../../../canary",
    SCRIPT,
    "",
    None,
    True,
    -1,
    0.5,
    10**30,
    math.inf,
    math.nan,
    [],
    {},
    [[]],
    DEEP,
)
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.fork")
_alarms: list[str] = []
_watching = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (event in FORBIDDEN or (event == "import" and str(arguments[0]).startswith(CANARY))):
        _alarms.append(f"{event} {arguments}")


@contextmanager
def watched() -> Iterator[None]:
    """Fails where something is run, or the canary imported, by whatever is done within."""
    global _watching
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert not _alarms, _alarms


_installed: list[bool] = []


def places(form: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a JSON form, the form itself included; of long lists the first entries."""
    yield above
    inner = form.items() if isinstance(form, dict) else enumerate(form[:2]) if isinstance(form, list) else ()
    for key, value in inner:
        yield from places(value, (*above, key))


def put(form: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The form with another value in that place."""
    if not place:
        return value
    other = copy.deepcopy(form)
    node = other
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return other


def dumped(form: Any) -> str:
    """JSON, with what no Python object should be nested like."""
    return json.dumps(form).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


def with_ids(form: Any) -> tuple[Any, dict[str, str]]:
    """A plan with the ids that its content has now, as somebody would set them; and which ids they replace."""
    try:
        changed, other = {}, copy.deepcopy(form)
        for block in other["blocks"]:
            for trial in block:
                parts = {key: trial[key] for key in ("method", "axes", "config")}
                own = Trial(**parts, event=_EVENT).id
                changed[trial["id"]] = trial["id"] = own
        other["id"] = Plan.from_json(other).id
    except Exception:  # noqa: BLE001 - it has none: then it keeps those that it had
        return form, {}
    if isinstance(form["id"], str):
        changed[form["id"]] = other["id"]
    return other, {old: new for old, new in changed.items() if isinstance(old, str) and old}


def forge(path: Path, sql: str, renamed: dict[str, str], edit: Callable[[dict[str, Any]], None] | None = None) -> None:
    """A whole chain out of a stored one, with other ids in it, and each line as `edit` makes it."""
    for old, new in renamed.items():
        sql = sql.replace(old, new)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA synchronous = OFF")
        made.executescript(sql)
        for (name,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            made.execute(f"DROP TRIGGER {name}")
        made.row_factory = sqlite3.Row
        rows = [dict(row) for row in made.execute("SELECT * FROM entries ORDER BY seq")]
        previous = rows[0]["previous"]  # the ledger's identity
        for row in rows:
            if edit is not None:
                edit(row)
            row["previous"] = previous
            row["digest"] = previous = digest_of_row(row)
            columns = ", ".join(f'"{name}" = :{name}' for name in row)
            made.execute(f"UPDATE entries SET {columns} WHERE seq = :seq", row)
        made.commit()


_EVENT = Plan.read(Path(__file__).parent / "frozen" / "format_1" / "composition" / "plan.json").event
