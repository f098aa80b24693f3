"""A Slurm of one's own on loopback: a controller, two nodes of two cores each, arrays of at most sixteen jobs."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
PACKAGES = "apt-get install slurm-wlm munge"
MOST = 16
START_SECONDS = 60

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
MaxArraySize={most}
SlurmdTimeout=20
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=6000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=6000 State=UNKNOWN
PartitionName=cpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A site that runs in this folder; `environment` leads its clients to it, `daemons` are those of its nodes."""

    root: Path
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=self.environment).stdout

    def jobs(self) -> dict[str, str]:
        """The states of all jobs so far, by their ids."""
        listed = self.run("squeue", "--noheader", "--array", "--states=all", "--format=%i %T")
        return dict(line.split() for line in listed.splitlines())

    def start_node(self, node: str) -> None:
        command = ["slurmd", "-D", "-f", self.environment["SLURM_CONF"], "-N", node]
        with (self.root / f"{node}.out").open("ab") as out:
            self.daemons[node] = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def kill_node(self, node: str) -> None:
        """Kills its daemon, what this started for jobs, and the jobs, as a power cut does."""
        self.daemons[node].kill()
        self.daemons[node].wait()
        raw = self.run("squeue", "--noheader", f"--nodelist={node}", "--states=RUNNING", "--format=%A").split()
        steps = tuple(f"slurmstepd: [{job}." for job in raw)
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command, variables = (path / "cmdline").read_bytes(), (path / "environ").read_bytes().split(b"\0")
                if command.startswith(tuple(map(str.encode, steps))) or f"SLURMD_NODENAME={node}".encode() in variables:
                    os.kill(int(path.name), signal.SIGKILL)

    def wait_until_idle(self) -> None:
        """Until all nodes are up and have no job."""
        _wait(lambda: _idle_nodes(self) == len(self.daemons))


def reason_why_not() -> str:
    """Why this machine cannot run such a site; empty if it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"Slurm is not installed ({', '.join(missing)}): {PACKAGES}"
    return "" if os.geteuid() == 0 else "the daemons of Slurm need root"


@contextmanager
def site_running_in(root: Path) -> Iterator[Site]:
    """A site whose files lie in this folder, until the end of the block; all of its processes end then."""
    root.chmod(0o755)
    key = root / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    host, ports = socket.gethostname().partition(".")[0], free_ports(3)
    conf = root / "slurm.conf"
    conf.write_text(CONF.format(host=host, root=root, port=ports[0], first=ports[1], second=ports[2], most=MOST))
    site = Site(root=root, environment={**os.environ, "SLURM_CONF": str(conf)})
    munged = ["munged", "--foreground", "--force", f"--socket={root}/munge.socket", f"--key-file={key}"]
    munged += [f"--{name}-file={root}/munge.{name}" for name in ("pid", "seed", "log")]
    with ExitStack() as stack:
        stack.enter_context(_process(munged, root))
        _wait(lambda: (root / "munge.socket").exists())
        stack.enter_context(_process(["slurmctld", "-D", "-f", str(conf)], root))
        for node in ("n1", "n2"):
            (root / f"spool-{node}").mkdir()
            site.start_node(node)
        try:
            site.wait_until_idle()
            yield site
            site.run("scancel", "--user=root")
        finally:
            for daemon in site.daemons.values():
                _end(daemon)


def _idle_nodes(site: Site) -> int:
    try:
        return len(set(site.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split()))
    except subprocess.CalledProcessError:
        return 0


@contextmanager
def _process(command: list[str], root: Path) -> Iterator[None]:
    with (root / f"{command[0]}.out").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "Slurm did not start"
        time.sleep(0.2)
