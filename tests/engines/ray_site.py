"""A Ray cluster of one's own on loopback: two machines of two cores each, by the commands of docs/scaling.md."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.engines.slurm_site import free_ports

START_SECONDS = 120
OPTIONS = "--block --num-cpus=2 --object-store-memory=80000000 --min-worker-port=0 --max-worker-port=0"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster that runs; `environment` has its token. The second machine's address is `second`."""

    environment: Mapping[str, str]
    address: str
    second: str

    def kill_second_machine(self) -> None:
        """Kills its raylet and all of its processes at once."""
        own = [path for path in Path("/proc").glob("[0-9]*") if f"--node_ip_address={self.second}" in _words(path)]
        for raylet in own:
            children = [path for path in Path("/proc").glob("[0-9]*") if _parent(path) == raylet.name]
            for path in (raylet, *children):
                with suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGKILL)


def reason_why_not() -> str:
    """Why this environment cannot run such a cluster; empty if it can."""
    return "" if importlib.util.find_spec("ray") else "Ray is not installed: pip install 'dpsweep[ray]'"


@contextmanager
def cluster_started_by(commands: tuple[str, ...]) -> Iterator[Cluster]:
    """A cluster by the page's commands: variables, the token, the first machine, the others; it ends with the block."""
    root = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # the paths of its sockets must be short
    port, client = free_ports(2)
    number = 16 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) + 2
    first, second = f"127.0.0.{number}", f"127.0.0.{number + 1}"
    environment = {**os.environ, "HOME": str(root), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = {"--head": f"--node-ip-address={first} --include-dashboard=false --ray-client-server-port={client}"}
    machines: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            line = command.replace("FIRST", first).replace("6379", str(port))
            if line.startswith("export "):
                environment |= [line.removeprefix("export ").split("=", 1)]
            elif line.startswith("ray start "):
                own = next((text for key, text in more.items() if key in line), f"--node-ip-address={second}")
                place = f"--temp-dir={root}" if "--head" in line else ""
                machines.append(_machine(f"{line} {own} {place} {OPTIONS}", environment, root))
                _wait_for_machines(f"{first}:{port}", len(machines), environment)
            else:
                subprocess.run(shlex.split(line), env=environment, check=True, stdout=subprocess.DEVNULL)
        yield Cluster(environment=environment, address=f"{first}:{port}", second=second)
    finally:
        for machine in reversed(machines):
            machine.terminate()
        for machine in machines:
            with suppress(subprocess.TimeoutExpired):
                machine.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(machine.pid, signal.SIGKILL)
        shutil.rmtree(root, ignore_errors=True)


def _machine(command: str, environment: Mapping[str, str], root: Path) -> subprocess.Popen[bytes]:
    with (root / "start.out").open("ab") as out:
        return subprocess.Popen(shlex.split(command), env=environment, stdout=out, stderr=out, start_new_session=True)


def _wait_for_machines(address: str, count: int, environment: Mapping[str, str]) -> None:
    code = f"import ray; ray.init('{address}', log_to_driver=False); assert len(ray.nodes()) == {count}"
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True).returncode:
        assert time.monotonic() < deadline, "Ray did not start"
        time.sleep(1)


def _words(process: Path) -> list[str]:
    with suppress(OSError):
        return (process / "cmdline").read_text().split("\0")
    return []


def _parent(process: Path) -> str:
    with suppress(OSError):
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    return ""
