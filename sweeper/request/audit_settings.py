"""The size of an audit, as a command asks for it; no part of any identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsweep.accounting.audit_record import Data
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.numbers import is_whole


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """`gradients` and `records` canaries of each training of a point, `trainings` of it, all at `confidence`.

    Either kind of canary may be left out, by 0.
    """

    data: Data = Data.GENERATED
    gradients: int = 3000
    records: int = 100
    trainings: int = 4
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.data not in list(Data):
            raise BadInput(f"Expected audit.data={self.data!r} to be one of {', '.join(Data)}.")
        object.__setattr__(self, "data", Data(self.data))
        for name, least in (("gradients", 0), ("records", 0), ("trainings", 1)):
            if not is_whole(getattr(self, name), least):
                raise BadInput(f"Expected audit.{name}={getattr(self, name)!r} to be an integer >= {least}.")
        if not self.gradients and not self.records:
            raise BadInput(
                "Expected audit.gradients or audit.records to be an integer >= 1: without a canary nothing is seen."
            )
        if not isinstance(self.confidence, float) or not 0.5 <= self.confidence < 1:
            raise BadInput(f"Expected audit.confidence={self.confidence!r} to be a number from 0.5 to below 1.")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> AuditSettings:
        """What the group `audit` of a configuration asks for."""
        try:
            return cls(**config)
        except TypeError:
            known = ", ".join(cls.__dataclass_fields__)
            raise BadInput(f"Expected audit={dict(config)!r} to have {known}, and nothing else.") from None
