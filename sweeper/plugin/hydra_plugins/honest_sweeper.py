"""Hydra plugins of dpsweep: its sweeper, and the configurations of other distributions.

`hydra/sweeper=honest` passes the overrides on and does nothing else. YAML files that another distribution has
registered are found after those of dpsweep, which none of them replaces, and in dpsweep's own programs alone.

Every Hydra program on the machine imports this file, so it imports nothing heavy. Hydra executes it outside
`sys.modules`, where dataclasses cannot resolve postponed annotations: they are not postponed here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


@dataclass
class HonestSweeperConf:
    """The sweeper's own settings.

    `verb`: sweep | resume | plan | plan_for_tre | advise | rehearse | audit. `max_batch_size`: jobs handed to the
    launcher at once, null to derive it. `retry`: the ended runs that a repeated command runs again: paid (killed ones
    that are paid for), and on another charge killed | failed | again (killed ones, or all if none was killed); none
    gives the killed ones up. `resume`: how often a run that was interrupted is launched again by the same command, on
    its charge. `study`: the Optuna address of the database for results, null for a file in the sweep's folder. `rules`:
    whether a plan prints the price under every rule.
    """

    _target_: str = "hydra_plugins.honest_sweeper.HonestSweeper"
    verb: str = "sweep"
    max_batch_size: int | None = None
    retry: str = "paid"
    resume: int = 0
    study: str | None = None
    rules: bool = False


ConfigStore.instance().store(group="hydra/sweeper", name="honest", node=HonestSweeperConf, provider="dpsweep")


class HonestSweeper(Sweeper):
    """Plans, prices, charges, and only then launches."""

    def __init__(
        self,
        verb: str,
        max_batch_size: int | None,
        retry: str,
        resume: int,
        study: str | None,
        rules: bool,
        **unknown: object,
    ) -> None:
        self.verb = verb
        self.max_batch_size = max_batch_size
        self.retry = retry
        self.resume = resume
        self.study = study
        self.rules = rules
        self.unknown = unknown  # refused by `sweep`: Hydra's series tell errors of this constructor differently

    def setup(self, *, hydra_context: "HydraContext", task_function: "TaskFunction", config: "DictConfig") -> None:
        """Stores the launcher's inputs; the program's own task is not run, since only `run_block` checks receipts."""
        self.hydra_context = hydra_context
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Runs the verb; the outcome's exit code reaches the shell through `dpsweep.sweeper.__main__`."""
        from dpsweep.accounting.errors import BadInput
        from dpsweep.sweeper.commands.requested_verb import execute_requested_verb
        from dpsweep.sweeper.coordinator.request import SweeperSettings, SweepRequest
        from dpsweep.sweeper.job.block_job import run_block

        if self.hydra_context is None or self.config is None:
            raise RuntimeError("Expected setup() before sweep().")
        if self.unknown:
            raise BadInput(
                f"Expected hydra.sweeper.{next(iter(self.unknown))} to be left out: there is no such setting."
            )
        settings = SweeperSettings(
            verb=self.verb,
            max_batch_size=self.max_batch_size,
            retry=self.retry,
            resume=self.resume,
            study=self.study,
            rules=self.rules,
        )
        request = SweepRequest.from_config(self.config, arguments, settings, context=self.hydra_context, task=run_block)
        return execute_requested_verb(request)


class RegisteredConfigurations(SearchPathPlugin):
    """The folders of YAML files that distributions have registered in the group `dpsweep.configurations`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Adds the folders behind dpsweep's own, if this program has it."""
        folders = [Path(one.path) for one in search_path.get_path() if one.provider == "main"]
        if not any(folder.name == "conf" for folder in folders):
            return
        from dpsweep.accounting.stored_names.tags import CONF, distributions_with_config_folders

        if CONF in folders:
            for distribution, folder in distributions_with_config_folders():
                search_path.append(provider=distribution, path=str(folder))
