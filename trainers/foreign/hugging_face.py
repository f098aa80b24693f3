"""A Hugging Face trainer's state beside an Opacus accountant: two counts of the same steps, which must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.errors import ContractBroken
from dpsweep.accounting.events.build import DpEvent, steps_of
from dpsweep.trainers.foreign import opacus_history


@dataclass(frozen=True, kw_only=True)
class TrainerState:
    """A trainer with a `state.global_step`, and the accountant of Opacus that watched its optimizer."""

    trainer: Any
    accountant: Any


def reads(value: Any) -> bool:
    """Whether this is a trainer with its accountant."""
    return isinstance(value, TrainerState)


def event_of_trainer(value: TrainerState) -> DpEvent:
    """The accountant's event; raises `ContractBroken` unless the trainer counts as many steps.

    They differ if the trainer skipped an optimizer step, or if the optimizer took one without the trainer.
    """
    event, counted = opacus_history.opacus_history(value.accountant), int(value.trainer.state.global_step)
    if steps_of(event) != counted:
        raise ContractBroken(
            f"Expected the trainer's global_step={counted} to be the {steps_of(event)} steps of its accountant."
        )
    return event
