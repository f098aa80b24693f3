"""Code that runs as strangers run it: in a fresh interpreter that can import torch and none of our packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BLOCKED = ("accounting", "trainers", "sweeper", "reports", "dpsweep", "hydra", "hydra_plugins", "omegaconf", "opacus")
BLOCKER = f"""
import sys

class _Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, _Blocked())
"""


def code_of(card: Path) -> str:
    """The code of a model card."""
    return card.read_text().split("```python\n", 1)[1].split("```", 1)[0]


def answers(folder: Path, code: str, rows: list[Any], path: Path | None = None) -> list[Any]:
    """What the code says of these rows, run in a folder; `path` is one more place to import from."""
    more = "" if path is None else f"sys.path.append({str(path)!r})\n"
    ask = f"import json as _json\nprint(_json.dumps([label(row) for row in _json.loads({json.dumps(rows)!r})]))\n"
    script = f"{BLOCKER}\n{more}{code}\n{ask}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, env={"PYTHONSAFEPATH": ""}
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
