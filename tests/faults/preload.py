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
    "reports.figures.heatmap",
    "reports.pages.curator_page",
    "reports.pages.release",
    "rich._emoji_codes",
    "seaborn",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.orm",
    "sweeper.commands.cli",
    "sweeper.commands.sweep",
    "tests.faults.instants",
    "tests.faults.witness",
    "trainers.training.checkpoint",
    "trainers.data.sets.embedded",
    "trainers.data.split",
    "trainers.methods.dpnsgd",
    "trainers.engines.auto",
    "trainers.engines.opacus",
    "trainers.training.loop",
    "trainers.models.initialize",
    "trainers.models.logistic",
)

for name in NAMES:
    importlib.import_module(name)
