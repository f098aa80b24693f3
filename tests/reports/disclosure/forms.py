"""The forms of a release that this installation has registered, by name."""

from __future__ import annotations

from dpsweep.accounting.stored_names.tags import FORMATS as GROUP
from dpsweep.accounting.stored_names.tags import registered_part_names
from dpsweep.reports.disclosure.formats import RegisteredFormat

NAMES = registered_part_names(GROUP)
FORMATS = {name: RegisteredFormat.from_name(name) for name in NAMES}
