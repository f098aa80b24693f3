"""The event in whatever a script reports: an accountant, an event, or a trainer with its accountant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpsweep.accounting.errors import UnsupportedEvent
from dpsweep.accounting.events.build import DpEvent
from dpsweep.accounting.events.dp_accounting_events import from_dp_accounting
from dpsweep.trainers.foreign import hugging_face, opacus_history


def _is_dp_event(value: Any) -> bool:
    """Whether this is an event of dp_accounting, which JAX-Privacy emits, or one of ours, by the name of its class."""
    return type(value).__name__.endswith("DpEvent")


_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], DpEvent]], ...] = (
    (hugging_face.reads, hugging_face.event_of_trainer),
    (opacus_history.reads, opacus_history.opacus_history),
    (_is_dp_event, from_dp_accounting),
)


def event_of(reported: Any) -> DpEvent:
    """The event of what a script reports; raises `UnsupportedEvent` if no reader knows it."""
    for reads, read in _READERS:
        if reads(reported):
            return read(reported)
    raise UnsupportedEvent(
        f"Expected event={type(reported).__name__} to be an accountant of Opacus, a DpEvent of dp_accounting, or "
        "dpsweep.TrainerState(trainer=..., accountant=...)."
    )
