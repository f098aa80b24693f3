"""Softmax regression with JAX-Privacy, whose execution plan holds clipping, sampling, noise and event together."""

import secrets

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dp_accounting import NeighboringRelation, pld
from jax_privacy.batch_selection import PartitionType, pad_to_multiple_of
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

import dpsweep

with dpsweep.attempt() as a:
    features, labels = a.train.features.reshape(len(a.train.labels), -1), a.train.labels
    plan = BandMFExecutionPlanConfig(
        iterations=a.steps,
        strategy=np.ones(1),  # independent noise: DP-SGD
        epsilon=None,
        delta=None,
        noise_multiplier=a.noise_multiplier,
        l2_clip_norm=a.clip_norm,
        rescale_to_unit_norm=False,
        normalize_by=a.batch_size,
        sampling_prob=a.sample_rate,
        partition_type=PartitionType.INDEPENDENT,
        accountant=pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE),
        noise_seed=secrets.randbits(31),
    ).plan

    def loss(weights, inputs, targets):
        """The cross-entropy of a batch."""
        return optax.softmax_cross_entropy_with_integer_labels(inputs @ weights, targets).sum()

    weights = jnp.zeros((features.shape[1], a.classes))
    gradient = jax.jit(plan.clipped_grad(loss, batch_argnums=(1, 2)))
    noise = plan.noise_addition_transform.init(weights)
    batches = plan.batch_selection_strategy.batch_iterator(len(labels))
    for _, batch in zip(a.each_step(), batches, strict=True):
        padded = pad_to_multiple_of(batch, 256)  # few sizes to compile for; an added place counts for nothing
        clipped = gradient(weights, features[padded], labels[padded], is_padding_example=padded < 0)
        private, noise = plan.noise_addition_transform.update(clipped, noise)
        weights = weights - a.hyperparameters["lr"] * private
    inputs = a.score_features.reshape(len(a.score_features), -1)
    np.save("weights.npy", np.asarray(weights))
    predictions = np.asarray(inputs @ np.asarray(weights)).argmax(axis=1)
    a.report(event=plan.dp_event, predictions=predictions, files={"weights.npy": "weights.npy"})
