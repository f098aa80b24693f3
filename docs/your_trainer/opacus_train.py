"""Softmax regression with Opacus: its parts are put together by hand, so that no private number enters them."""

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import nn

import dpsweep

with dpsweep.attempt() as a:
    features, labels = torch.from_numpy(a.train.features), torch.from_numpy(a.train.labels)
    model = GradSampleModule(nn.Sequential(nn.Flatten(), nn.Linear(features[0].numel(), a.classes)))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=a.hyperparameters["lr"]),
        noise_multiplier=a.noise_multiplier,
        max_grad_norm=a.clip_norm,
        expected_batch_size=a.batch_size,
    )
    accountant = RDPAccountant()
    optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=a.sample_rate))
    batches = UniformWithReplacementSampler(num_samples=len(labels), sample_rate=a.sample_rate, steps=a.steps)
    for _, batch in zip(a.each_step(), batches, strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        predictions = model(torch.from_numpy(a.score_features)).softmax(dim=1)
    np.savez("weights.npz", **{name: value.numpy() for name, value in model.state_dict().items()})
    a.report(event=accountant, predictions=predictions.numpy(), files={"weights.npz": "weights.npz"})
