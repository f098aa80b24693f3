"""What the server of `tests/forked_programs.py` has before it forks: all that a sweep imports and reads on its way.

Beside the imports these are the files of conf/, parsed once. Nothing is priced or trained, and no thread starts. The
garbage collector leaves all of it alone, so that forks share its memory.
"""

import gc
import importlib
import pkgutil

import dpsweep

OTHERS = (
    "hydra._internal.core_plugins.bash_completion",
    "hydra._internal.core_plugins.basic_launcher",
    "hydra._internal.core_plugins.basic_sweeper",
    "hydra._internal.core_plugins.fish_completion",
    "hydra._internal.core_plugins.importlib_resources_config_source",
    "hydra._internal.core_plugins.structured_config_source",
    "hydra._internal.core_plugins.zsh_completion",
    "matplotlib.backends.backend_svg",
    "matplotlib.pyplot",
    "optuna.storages.journal",
    "rich._emoji_codes",
    "seaborn",
    "sqlalchemy.dialects.sqlite",
    "tests.faults.syscalls",
    "tests.faults.access_log",
)
OURS = (module.name for module in pkgutil.walk_packages(dpsweep.__path__, "dpsweep."))

for name in (*OTHERS, *OURS):
    if not name.endswith((".__main__", ".hydra_plugins")) and ".hydra_plugins." not in name:
        importlib.import_module(name)

from dpsweep.sweeper.planning.keys import documented_keys  # noqa: E402
from tests.composing import compose_default, compose_quickly  # noqa: E402
from tests.forked_timing import time_in_forks  # noqa: E402

documented_keys()
compose_quickly()
compose_default()
time_in_forks()
gc.collect()
gc.freeze()
