"""The command that repeats a search on data of the reader's own, made from what the plan declares to everybody.

Invariant: it has the choices that come with dpsweep, numbers of their own keys, and nothing else: no path, account,
seed, name of a user's, or number that a search drew. Of a search with a secret number of tries it has the law.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.records.plan import Plan
from dpsweep.accounting.stored_names.stored_classes import AUTO, RECIPE, tag_or_path_of_class, with_words_of_recipe
from dpsweep.accounting.stored_names.tags import CONF

GROUPS = (
    *("model", "loss", "lr_schedule", "clip_schedule", "sampler", "noise", "score"),
    *("features", "adapter", "augmentation"),
)
"""The groups of a trial's configuration that a command names."""

PUBLIC_NAMES = frozenset({"metric", "train_on"})
"""The keys whose values are names that dpsweep fixes."""


def repeat_command(plan: Plan) -> str:
    """The command for this plan; `...` stands for what the reader has to fill in."""
    return shlex.join(["dpsweep", "sweep", "dataset=...", *_words_of_plan(plan)])


def _words_of_plan(plan: Plan) -> Iterator[str]:
    trials, configs = plan.trials, [with_words_of_recipe(trial.config) for trial in plan.trials]
    config = configs[0]
    methods = list(dict.fromkeys(trial.method for trial in trials))
    yield f"trainer={','.join(methods)}"
    if any("script" in trial.config.get("trainer", {}) for trial in trials):
        yield "trainer.script=..."
    yield from _axes_and_trainer_words(plan, len(methods))
    steps = {config["steps"] for config in configs}
    if not any("steps" in trial.axes for trial in trials):
        yield f"steps={','.join(map(str, sorted(steps)))}"
    swept = {key for trial in trials for key in trial.axes}
    for group in GROUPS:
        if config.get(group) == AUTO:
            yield f"{group}={AUTO}"
        elif group not in swept and config.get(group):
            yield from _words_of_group(group, _without_solved_numbers(plan, config, group), swept)
    if RECIPE in config:
        yield f"plan.limit={config[RECIPE]['limit']:g}"
    yield from _words_of_settings(config, swept)
    yield from _words_of_rule(plan.rule, swept)
    if plan.least_runs_per_point > 1:
        yield f"repeats={plan.least_runs_per_point}"
    if plan.proposed is not None:
        yield from _words_of_group("search", {**plan.proposed.sampler, "trials": plan.proposed.trials}, swept)
    if plan.target_epsilon is not None:
        yield f"privacy.epsilon={text_with_all_digits(plan.target_epsilon)}"
    elif "privacy.noise_multiplier" not in swept:
        yield f"privacy.noise_multiplier={text_with_all_digits(config['privacy']['noise_multiplier'])}"
    yield f"privacy.delta={text_with_all_digits(plan.delta)}"
    yield f"privacy.adjacency={plan.adjacency.value}"


def _words_of_settings(config: Mapping[str, Any], swept: set[str]) -> Iterator[str]:
    """The words of settings in no group, where they are not the usual ones."""
    checkpoint, sealed = config.get("checkpoint") or {}, config.get("sealed")
    values = {
        "subsample": config.get("subsample"),
        "ema": config.get("ema"),
        "initial_weights": config.get("initial_weights"),
        "checkpoint.every": checkpoint.get("every"),
        "checkpoint.resumes": checkpoint.get("resumes"),
    }
    for key, value in values.items():
        if key not in swept and value not in (None, "independent") and (key, value) != ("checkpoint.resumes", 1):
            yield f"{key}={value}"
    if sealed:
        yield f"budget.sealed={{share: {sealed['share']}, parts: {sealed['parts']}}}"


def _words_of_rule(rule: Mapping[str, Any], swept: set[str]) -> Iterator[str]:
    """The rule with its numbers: those of the law of its tries, and of a rule within it."""
    inner = rule.get("rule") or {}
    if rule.get("kind") == "final":
        yield from _words_of_group("tuning", inner, swept)
        yield "plan.final=true"
        return
    yield from _words_of_group("tuning", rule, swept)
    yield from (
        f"tuning.rule.{key}={json.dumps(value)}"
        for key, value in inner.items()
        if key != "kind" and _is_public(key, value)
    )


def _axes_and_trainer_words(plan: Plan, methods: int) -> Iterator[str]:
    """The values of each swept key, and the other numbers of the trainers, in the order of the plan."""
    values: dict[str, list[str]] = {}
    having: dict[str, set[str]] = {}
    for trial in plan.trials:
        own = _public_fields("trainer", trial.method, trial.config.get("trainer", {}), every=True)
        for key, value in {**{f"trainer.{name}": one for name, one in own.items()}, **trial.axes}.items():
            if _is_public(key, value):
                having.setdefault(key, set()).add(trial.method)
                values.setdefault(key, []).append(json.dumps(value).strip('"'))
    for key, own_values in values.items():
        text = ",".join(dict.fromkeys(own_values))
        yield f"{key}={text}" if len(having[key]) == methods or "," in text else f"{key}=choice({text})"


def _without_solved_numbers(plan: Plan, config: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """The settings of a group, without what the plan solved, and with the batch size before records were divided."""
    node, part = dict(config[group]), config.get("part")
    if group == "score" and plan.target_epsilon is not None:
        node.pop("noise_std", None)
    if part is not None and isinstance(node.get("batch_size"), int):
        node["batch_size"] = round(node["batch_size"] / part.get("share", 1.0))
    return node


def _words_of_group(group: str, node: Mapping[str, Any], swept: set[str]) -> Iterator[str]:
    """The choice of a group, and its numbers that are not those of the choice."""
    name = _choices_by_tag(group).get(tag_or_path_of_class(node))
    yield f"{group}={name or '...'}"
    if name is not None:
        fields = _public_fields(group, name, node, every=False)
        yield from (
            f"{group}.{key}={json.dumps(value)}".replace('"', "")
            for key, value in fields.items()
            if f"{group}.{key}" not in swept
        )


def _public_fields(group: str, name: str, node: Mapping[str, Any], *, every: bool) -> dict[str, Any]:
    """The numbers and fixed names among the keys that the choice has; those of the choice itself too with `every`."""
    written = _fields_of_choice(group, name)
    own = {key: value for key, value in node.items() if key in written and _is_public(key, value)}
    return {key: value for key, value in own.items() if every or value != written[key]}


def _is_public(key: str, value: object) -> bool:
    parts = value if isinstance(value, (list, tuple)) else [value]
    return all(
        isinstance(one, (int, float)) or one == AUTO or (isinstance(one, str) and key in PUBLIC_NAMES) for one in parts
    )


@cache
def _choices_by_tag(group: str) -> Mapping[str, str]:
    """The choices of a group by the tags of their classes, the first of each class, and `auto` last."""
    names = sorted((path.stem for path in (CONF / group).glob("*.yaml")), key=lambda name: (name == "auto", name))
    forms = ((name, _fields_of_choice(group, name)) for name in names)
    return {tag_or_path_of_class(form): name for name, form in reversed([*forms]) if "_target_" in form}


@cache
def _fields_of_choice(group: str, name: str) -> Mapping[str, Any]:
    path = CONF / group / f"{name}.yaml"
    form = yaml.safe_load(path.read_text()) if path.is_file() else None
    return form if isinstance(form, dict) else {}
