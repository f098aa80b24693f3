"""Slurm's commands, played by shell scripts on PATH: jobs run at once on this machine, in arrays of at most two.

As Slurm does, `sbatch` keeps a copy of the script: submitit moves the script as soon as the command has returned, and a
job that begins at this moment must not miss it.

A job whose id is in the file `dead` ends without having begun. With the file `closed` nothing is accepted, though it is
when it is tried. `calls` has the commands as they came.
"""

from __future__ import annotations

from pathlib import Path

MOST = 2

SBATCH = f"""
script="${{@: -1}}"
if grep -q -- "--partition=nope" "$script"; then
  echo "sbatch: error: invalid partition specified: nope" >&2; exit 1
fi
last=$(sed -n 's/^#SBATCH --array=.*0-\\([0-9]*\\)%.*/\\1/p' "$script")
if [ "${{last:-0}}" -ge {MOST} ]; then
  echo "sbatch: error: Batch job submission failed: Invalid job array specification" >&2; exit 1
fi
[ "$1" = --test-only ] && exit 0
if [ -e "$site/closed" ]; then
  echo "sbatch: error: Batch job submission failed: Required partition not available" >&2; exit 1
fi
id=$(($(ls "$site/ids" | wc -l) + 1)); touch "$site/ids/$id"
cp "$script" "$site/scripts/$id"
for task in $(seq 0 "${{last:-0}}"); do
  name=$id${{last:+_$task}}
  grep -qx "$name" "$site/dead" 2>/dev/null && continue
  touch "$site/queue/$name"
  export SLURM_JOB_ID=$id SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
  [ -n "$last" ] && export SLURM_ARRAY_JOB_ID=$id SLURM_ARRAY_TASK_ID=$task
  (bash "$site/scripts/$id"; rm "$site/queue/$name") >/dev/null 2>&1 </dev/null &
done
echo "Submitted batch job $id"
"""

COMMANDS = {
    "sbatch": SBATCH,
    "srun": 'while [ "${1#--}" != "$1" ]; do case "$1" in --output|--error) shift;; esac; shift; done; "$@"',
    "squeue": 'case "$*" in *--states=all*) echo FAILED;; *) ls "$site/queue";; esac',
    "scontrol": f'echo "ClusterName             = played"; echo "MaxArraySize            = {MOST}"',
    "scancel": "",
}


def write_slurm_commands(site: Path) -> Path:
    """Writes the commands below this folder, and returns the folder that belongs on PATH."""
    for name in ("commands", "ids", "queue", "scripts"):
        (site / name).mkdir(parents=True)
    for name, body in COMMANDS.items():
        path = site / "commands" / name
        path.write_text(f'#!/bin/bash\nsite={site}\necho "{name} $*" >> "$site/calls"\n{body}\n')
        path.chmod(0o755)
    return site / "commands"
