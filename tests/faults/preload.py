"""What the server imports before it forks: all that a sweep imports on its way."""

import importlib

NAMES = (
    "alembic.command",
    "hydra._internal.core_plugins.bash_completion",
    "hydra._internal.core_plugins.basic_launcher",
    "hydra._internal.core_plugins.basic_sweeper",
    "hydra._internal.core_plugins.fish_completion",
    "hydra._internal.core_plugins.importlib_resources_config_source",
    "hydra._internal.core_plugins.structured_config_source",
    "hydra._internal.core_plugins.zsh_completion",
    "matplotlib.backends.backend_svg",
    "matplotlib.pyplot",
    "optuna.storages._rdb.models",
    "optuna.storages._rdb.storage",
    "dpsweep.reports.figures.heatmap",
    "dpsweep.reports.pages.curator_page",
    "dpsweep.reports.pages.release",
    "rich._emoji_codes",
    "seaborn",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.orm",
    "dpsweep.sweeper.commands.cli",
    "dpsweep.sweeper.commands.sweep_coordinator",
    "tests.faults.instants",
    "tests.faults.witness",
    "dpsweep.trainers.training.checkpoint",
    "dpsweep.trainers.data.sets.embedded",
    "dpsweep.trainers.data.split",
    "dpsweep.trainers.methods.named",
    "dpsweep.trainers.engines.auto",
    "dpsweep.trainers.engines.opacus",
    "dpsweep.trainers.training.loop",
    "dpsweep.trainers.models.initialize",
    "dpsweep.trainers.models.logistic",
)

for name in NAMES:
    importlib.import_module(name)
