"""The script of docs/scaling.md that makes the coordinator a job, with a played sweep and a played `scontrol`.

`tests/engines/test_slurm.py` runs it on a Slurm; what a killed coordinator leaves to the same command is in
`tests/faults/test_kills.py`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.waiting import HANGS, wait

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"
SWEEP = """#!/bin/bash
trap 'echo stopped >> calls; exit 4' TERM
echo "$SLURM_MEM_PER_CPU" > began
while [ ! -e over ]; do sleep 0.05; done
exit 3
"""


def script() -> str:
    """The script as it is documented."""
    (found,) = re.findall(r'```bash title="coordinator.sh"\n(.*?)```', PAGE.read_text(), re.S)
    return str(found)


@pytest.mark.parametrize(
    ("number", "code", "called"),
    [
        (None, 3, []),
        (signal.SIGTERM, 4, ["stopped"]),
        (signal.SIGUSR1, 0, ["stopped", "requeue 17"]),
    ],
    ids=["ends", "preempted", "out of time"],
)
def test_the_script_stops_the_sweep_and_queues_itself_again_where_slurm_does_not(
    number: signal.Signals | None, code: int, called: list[str], tmp_path: Path
) -> None:
    for name, text in {"dpsweep": SWEEP, "scontrol": '#!/bin/bash\necho "$*" >> calls\n', "job": script()}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "17",
        "SLURM_MEM_PER_CPU": "1",
    }
    with subprocess.Popen([tmp_path / "job"], cwd=tmp_path, env=environment) as job:
        wait(lambda: (tmp_path / "began").exists())
        if number is None:
            (tmp_path / "over").touch()
        else:
            job.send_signal(number)
        assert job.wait(HANGS) == code
    assert (tmp_path / "began").read_text() == "\n", "jobs would refuse it beside their own memory"
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    assert calls == called
