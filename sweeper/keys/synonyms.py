"""Words of other tools (Opacus, TensorFlow Privacy, JAX-Privacy, Hugging Face, Optuna, scikit-learn) for our keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dpsweep.sweeper.keys.documented_keys import default_choices, documented_keys

EPOCHS = ("epochs", "num_epochs", "num_train_epochs", "max_epochs", "n_epochs")

SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(EPOCHS, "steps"),
    **dict.fromkeys(("max_steps", "num_steps", "n_steps", "iterations", "max_iter"), "steps"),
    **dict.fromkeys(
        ("batch_size", "lot_size", "expected_batch_size", "logical_batch_size", "per_device_train_batch_size"),
        "sampler.batch_size",
    ),
    **dict.fromkeys(("microbatch_size", "physical_batch_size", "max_physical_batch_size"), "compute.chunk"),
    **dict.fromkeys(("lr", "learning_rate", "eta", "step_size"), "trainer.lr"),
    **dict.fromkeys(
        ("max_grad_norm", "max_norm", "l2_norm_clip", "clip_norm", "clipping_norm", "clipping_threshold", "clip", "C"),
        "trainer.clip_norm",
    ),
    **dict.fromkeys(("regularizer", "regulariser", "gamma", "r"), "trainer.regularizer"),
    **dict.fromkeys(("momentum", "beta1", "beta2"), "trainer.{}"),
    **dict.fromkeys(("sigma", "noise_multiplier", "noise_scale", "noise"), "privacy.noise_multiplier"),
    **dict.fromkeys(("epsilon", "eps", "target_epsilon", "privacy_budget"), "privacy.epsilon"),
    **dict.fromkeys(("delta", "target_delta"), "privacy.delta"),
    **dict.fromkeys(("neighbouring_relation", "neighboring_relation", "adjacency"), "privacy.adjacency"),
    **dict.fromkeys(("random_seed", "random_state", "manual_seed", "rng_seed"), "seed"),
    **dict.fromkeys(("device", "gpu", "gpus", "accelerator"), "compute.device"),
    **dict.fromkeys(("threads", "num_threads"), "compute.threads"),
    **dict.fromkeys(("optimizer", "optimiser", "method", "algorithm", "algo"), "trainer"),
    **dict.fromkeys(("scheduler", "lr_scheduler", "lr_scheduler_type"), "lr_schedule"),
    **dict.fromkeys(("net", "network", "arch", "architecture", "model_name"), "model"),
    **dict.fromkeys(("data_dir", "data_root", "data_path", "root"), "data"),
    **dict.fromkeys(("task", "data_set", "corpus"), "dataset"),
    **dict.fromkeys(("n_trials", "num_trials", "num_samples", "max_trials", "trials"), "search.trials"),
    **dict.fromkeys(("rule", "selection"), "tuning"),
    **dict.fromkeys(("val_split", "validation_split", "val_fraction", "test_size"), "score.fraction"),
    **dict.fromkeys(("objective", "scoring", "metric"), "score.metric"),
    **dict.fromkeys(("n_repeats", "num_repeats", "seeds"), "repeats"),
    **dict.fromkeys(("ema_decay", "use_ema"), "ema"),
    **dict.fromkeys(("augmult", "augmentation_multiplicity"), "augmentation.multiplicity"),
    **dict.fromkeys(("lora_rank", "lora_r"), "adapter.rank"),
    **dict.fromkeys(("output_dir", "out", "output", "save_dir"), "hydra.sweep.dir"),
    **dict.fromkeys(("n_jobs", "num_workers", "workers", "n_cpus"), "hydra.launcher.n_jobs"),
}
"""Our key, or group, by another tool's name for it; `{}` stands for that name."""


def our_word(name: str, value: str, words: Sequence[str]) -> str | None:
    """Our word for another tool's `name=value` in a command of these words; None where the name is unknown.

    Epochs become steps where the command, or the configuration of its data set, says how many records there are.

    >>> our_word("max_grad_norm", "1", [])
    'trainer.clip_norm=1'
    """
    last = name.rpartition(".")[2]
    if last not in SYNONYMS:
        return None
    key = SYNONYMS[last].format(last)
    if last in EPOCHS:
        return _steps(value, words)
    return f"{key}={value}" if value else key


def _steps(epochs: str, words: Sequence[str]) -> str:
    """`steps=` for so many epochs, each value by itself; the formula where a size is unknown."""
    records, batch_size = _size("dataset.records", words), _size("sampler.batch_size", words)
    numbers = [_number(value) for value in epochs.split(",")]
    if records is None or batch_size is None or None in numbers:
        return "steps=..., epochs x training records / sampler.batch_size"
    step = batch_size / (records - math.floor(records * _held_out(words)))
    return "steps=" + ",".join(str(math.ceil(number / step)) for number in numbers if number is not None)


def _held_out(words: Sequence[str]) -> float:
    """The share of the records that is held out for private scores."""
    if "score=private" not in words and any(word.startswith("score=") for word in words):
        return 0.0
    given = next((word.partition("=")[2] for word in words if word.startswith("score.fraction=")), None)
    return _number(given or documented_keys()["score.fraction"].values["score=private"]) or 0.0


def _size(key: str, words: Sequence[str]) -> float | None:
    """A key's number on the command line, else in the data set's configuration."""
    given = dict(word.split("=", 1) for word in words if "=" in word)
    data_set = given.get("dataset", default_choices()["dataset"])
    return _number(given.get(key, documented_keys()[key].values.get(f"dataset={data_set}", "")))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
