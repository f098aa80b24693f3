"""Claims on learning rates and noise: the best rate against the clip norm and against the noise, and batch sizes."""

from __future__ import annotations

import pandas as pd

from dpsweep.reports.reproduction.results import SearchResults
from dpsweep.reports.statistics.point_scores import NOISE

BATCH, NOISE_OF_MEAN = "sampler.batch_size", "noise_of_mean"


def rows_with_noise_of_mean(results: SearchResults) -> pd.DataFrame:
    """The rows with the noise on the mean of a batch, the noise multiplier over its size, in place of the multiplier.

    A search with one size of batches has no such rows.
    """
    table = results.table
    if BATCH not in table:
        return table[:0]
    noise = table[NOISE].astype(float) / table[BATCH].astype(float)
    return table.drop(columns=[NOISE, f"privacy.{NOISE}"]).assign(
        **{NOISE_OF_MEAN: noise.map(lambda one: f"{one:.4g}")}
    )
