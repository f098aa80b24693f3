"""`python -m dpsweep.reports.reproduction` where the folder of this name is missing, as in an installed package.

In a checkout Python finds the folder before this file.
"""

from __future__ import annotations

import sys

from dpsweep.accounting.errors import ExitCode
from dpsweep.accounting.printing import print_error

IN_CHECKOUT = (
    "The reproductions of the papers' figures (reports/reproduction) are in a checkout of dpsweep's source and not in "
    "the installed package: run this command in a checkout."
)

if __name__ == "__main__":
    print_error(IN_CHECKOUT)
    sys.exit(ExitCode.BAD_INPUT)
