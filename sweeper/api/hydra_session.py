"""A request from a list of overrides, without a command line: what Hydra does for `dpsweep sweep` before the sweep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf.errors import OmegaConfBaseException

from dpsweep.accounting.errors import BadInput
from dpsweep.sweeper.commands.command_words import prepared
from dpsweep.sweeper.commands.hydra_app import CONF
from dpsweep.sweeper.commands.hydra_door import refuse_words
from dpsweep.sweeper.commands.readable_files import files_by_name
from dpsweep.sweeper.job.block_job import run_block
from dpsweep.sweeper.keys.unknown_words import in_our_words
from dpsweep.sweeper.request.sweep_request import SweeperSettings, SweepRequest, Verb


@contextmanager
def requested(verb: Verb, overrides: Sequence[str]) -> Iterator[SweepRequest]:
    """The request of a verb with these overrides; Hydra is initialised within the block.

    Raises `BadInput` for an override that the configuration does not take.
    """
    refuse_words(overrides)
    GlobalHydra.instance().clear()
    try:
        with files_by_name():
            hydra = Hydra.create_main_hydra2("dpsweep", create_config_search_path(str(CONF)))
            yield _request(hydra, verb, prepared(overrides))
    except (HydraException, OmegaConfBaseException) as cause:
        raise BadInput(in_our_words(cause, overrides) or str(cause).splitlines()[0]) from cause
    finally:
        GlobalHydra.instance().clear()


def _request(hydra: Hydra, verb: Verb, words: Sequence[str]) -> SweepRequest:
    config = hydra.compose_config("config", list(words), RunMode.MULTIRUN, with_log_configuration=False)
    own = config.hydra.sweeper
    settings = SweeperSettings(verb=verb, max_batch_size=own.max_batch_size, retry=own.retry, study=own.study)
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    typed = list(map(str, config.hydra.overrides.task))
    return SweepRequest.from_config(config, typed, settings, context=context, task=run_block)
