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
    "reports.heatmap",
    "reports.page",
    "reports.release",
    "rich._emoji_codes",
    "seaborn",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.orm",
    "sweeper.cli",
    "sweeper.verbs",
    "tests.faults.instants",
    "tests.faults.witness",
    "trainers.checkpoint",
    "trainers.data.embedded",
    "trainers.data.split",
    "trainers.dpnsgd",
    "trainers.engines.auto",
    "trainers.engines.opacus",
    "trainers.loop",
    "trainers.models.initialise",
    "trainers.models.logistic",
)

for name in NAMES:
    importlib.import_module(name)
