"""The number of weights that a run trains: each of its steps releases so many noisy numbers, which its price includes.

Planning counts them and writes them into a point's configuration, so that they are part of what is charged. A sweep
builds every model once more before the charge, and refuses one that has more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.stored_names.stored_classes import tag_or_path_of_class
from dpsweep.sweeper.planning.plan_settings import Point
from dpsweep.sweeper.trial.spec import ADAPTER, FEATURES, WEIGHTS, dataset_from_config
from dpsweep.trainers.methods.script import is_script_config


def points_with_trained_weights(points: Iterable[Point]) -> Iterator[Point]:
    """The points with the number of weights; as they are for a script, whose noise is not on the lattice.

    It builds models, so the code that points name must have been allowed to run. Raises `BadInput` if a model cannot be
    built.
    """
    for point in points:
        parts = {name: point.config.get(name) for name in ("dataset", "model", FEATURES, ADAPTER)}
        form = json.dumps(parts, sort_keys=True)
        yield point if is_script_config(point.config) else point.with_settings(**{WEIGHTS: _number_of_weights(form)})


@lru_cache(maxsize=256)
def _number_of_weights(form: str) -> int:
    config = json.loads(form)
    dataset, model = dataset_from_config(config), config["model"]
    widths = _widths_of_linear_maps(tag_or_path_of_class(model), model)
    if widths is not None and not config[ADAPTER]:  # for speed alone: importing torch takes as long as a plan
        sizes = (math.prod(dataset.shape), *widths, max(1, dataset.classes))
        return sum((before + 1) * after for before, after in pairwise(sizes))
    from dpsweep.sweeper.trial.build import make_model

    try:
        return sum(each.numel() for each in make_model(config, WEIGHTS).parameters() if each.requires_grad)
    except (ImportError, OSError, ValueError, TypeError, RuntimeError) as cause:
        raise BadInput(f"Expected model={tag_or_path_of_class(model)} to be built: {cause}") from cause


def _widths_of_linear_maps(name: str, model: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The widths of the hidden layers of our models of linear maps; None for other models."""
    if name in ("linear", "logistic"):
        return ()
    widths = model.get("widths")
    return tuple(widths) if name == "mlp" and isinstance(widths, list) else None
