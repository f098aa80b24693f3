"""Cells run as a notebook runs them: by Jupyter's own kernel where it is installed, else by a stand-in.

The kernel needs `pip install nbclient ipykernel`, 70 MB. The stand-in runs the cells in one process and shows the last
expression of each by IPython's display protocol, as the kernel does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KERNEL = all(find_spec(name) is not None for name in ("nbclient", "ipykernel"))

_BY_KERNEL = """
import json, sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
book = nbformat.v4.new_notebook(cells=cells)
NotebookClient(book, timeout=600, allow_errors=True, kernel_name="python3").execute()
def shown(output):
    error = {"error": f"{output.get('ename')}: {output.get('evalue')}"} if output.output_type == "error" else {}
    return {"text": output.get("text", ""), **output.get("data", {}), **error}
print(json.dumps([[shown(output) for output in cell.outputs] for cell in book.cells]))
"""

_BY_STAND_IN = """
import ast, base64, contextlib, io, json, sys
names, results = {"__name__": "__main__"}, []
for source in json.load(sys.stdin):
    tree, value, stream = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    outputs = []
    with contextlib.redirect_stdout(stream):
        try:
            exec(compile(tree, "cell", "exec"), names)
            value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        except Exception as error:
            outputs.append({"error": f"{type(error).__name__}: {error}"})
    if value is not None:
        views = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_") and value._repr_html_():
            views["text/html"] = value._repr_html_()
        if hasattr(value, "_repr_png_"):
            views["image/png"] = base64.b64encode(value._repr_png_()).decode()
        outputs.append(views)
    results.append([{"text": stream.getvalue()}, *outputs])
print(json.dumps(results))
"""


def outputs_of(cells: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """What each cell shows, by MIME type, with `text` for what it printed and `error` for what it raised."""
    line = [sys.executable, "-c", _BY_KERNEL if KERNEL else _BY_STAND_IN]
    done = subprocess.run(
        line, input=json.dumps(list(cells)), cwd=folder, env=dict(environment), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shown = []
    for outputs in json.loads(done.stdout.splitlines()[-1]):
        views: dict[str, Any] = {}
        for output in outputs:
            views = {**views, **output, "text": views.get("text", "") + output.get("text", "")}
        shown.append(views)
    return shown
