"""The forms of a release that this installation has registered, by name."""

from __future__ import annotations

from dpsweep.accounting.stored_names.entry_points import FORMATS as GROUP
from dpsweep.accounting.stored_names.entry_points import part_names
from dpsweep.reports.disclosure.formats import RegisteredFormat

NAMES = part_names(GROUP)
FORMATS = {name: RegisteredFormat.of(name) for name in NAMES}
