import numpy as np
from opacus.accountants import RDPAccountant

import dpsweep

with dpsweep.attempt() as a:
    drawn = np.random.default_rng()
    records, mean = a.train.features.reshape(len(a.train.labels), -1), 0.0
    accountant = RDPAccountant()
    for _ in a.each_step():
        batch = records[drawn.random(len(records)) < a.sample_rate]
        norms = np.maximum(np.linalg.norm(batch, axis=1, keepdims=True) / a.clip_norm, 1.0)
        mean = mean + (batch / norms).sum(axis=0)
        mean = mean + drawn.normal(size=records.shape[1]) * a.noise_multiplier * a.clip_norm
        accountant.step(noise_multiplier=a.noise_multiplier, sample_rate=a.sample_rate)
    predictions = np.full((len(a.score_features), a.classes), 1 / a.classes)
    a.report(event=accountant, predictions=predictions)
