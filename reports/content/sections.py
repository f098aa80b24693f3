"""The sections of a page as plain values with finished texts; the template only lays them out."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata

import yaml

from dpsweep.accounting.errors import DpsweepError
from dpsweep.accounting.ledger.ledger import Ledger
from dpsweep.accounting.notation import noise_text_rounded_down
from dpsweep.accounting.rehearsal import is_rehearsal_plan
from dpsweep.accounting.searches.folder_audit import verify_sweep_folder_and_describe
from dpsweep.accounting.stored_names.stored_classes import class_name_without_module
from dpsweep.reports.content import formatting as notation
from dpsweep.reports.content.facts import Bill, Fact
from dpsweep.reports.content.formatting import axis_label, method_label, setting_text
from dpsweep.reports.content.sweep_table import FINAL, NEXT_TOKEN_ACCURACY, State, Sweep, first_noise_multiplier
from dpsweep.reports.content.told_score import ToldScore, told_score_of_run
from dpsweep.reports.content.trial_config import FrozenFeatures

_LOSSES = {"test_loss": "perplexity on public test records", "training_loss": "perplexity on training records"}
"""By the name of a mean loss in a learning curve: how a page calls its exponential."""
OF_POSITIVE_CLASS = frozenset({"sensitivity", "specificity", "F1", "AUROC"})
"""The numbers of two classes that are about one of them."""

_LARGEST = 700.0
"""A mean loss whose exponential is still a float64."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best configuration of all or of a method; hidden texts are empty.

    `interval` is told of its score, `confidence` says how sure it is, and `score` is the sentence on the score that
    chose. `also` has further metrics from the same counts, with their intervals. `final` marks a final run.
    """

    method: str
    overall: bool
    settings: tuple[tuple[str, str], ...]
    score: str
    interval: str
    confidence: str = ""
    also: tuple[tuple[str, str], ...] = ()
    final: bool = False


class Tone(StrEnum):
    """The meaning of a segment of a bar, which sets its colour."""

    OTHERS = "others"
    OWN = "own"
    TROUBLE = "trouble"
    LEFT = "left"


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment of a bar, as a share of the whole."""

    name: str
    tone: Tone
    start: float
    share: float
    text: str


def best_configurations(sweep: Sweep, *, trials: Sequence[str], with_score: bool) -> tuple[Best, ...]:
    """The given winners, the best of all first; `with_score` says whether the rule discloses scores."""
    rows = sorted((sweep.row_of_trial(trial) for trial in trials), key=lambda row: row["trial"] != sweep.winner_id)
    told = {str(row["trial"]): told_score_of_run(sweep, str(row["trial"])) if with_score else None for row in rows}
    return tuple(
        Best(
            method=method_label(str(row["method"])),
            overall=row["trial"] == sweep.winner_id,
            settings=_setting_texts_of_point(sweep, str(row["trial"])),
            score="" if one is None else one.score_sentence,
            interval="" if one is None else one.interval_text,
            confidence="" if one is None else one.confidence_text,
            also=() if one is None else tuple(_further_metric_texts(sweep, str(row["trial"]), one)),
            final=row["trial"] in set(sweep.final["trial"]),
        )
        for row, one in zip(rows, told.values(), strict=True)
    )


def _further_metric_texts(sweep: Sweep, trial: str, told: ToldScore) -> Iterator[tuple[str, str]]:
    """Further numbers of the same counts, and perplexities on records declared public."""
    for label, number in told.also.items():
        name = f"{label}{sweep.positive_class_text}" if label in OF_POSITIVE_CLASS else label
        yield name, told.text_of_further_number(number)
    yield from ((name, f"{value:.4g}") for name, value in _perplexities_by_name(sweep, trial).items())


def _perplexities_by_name(sweep: Sweep, trial: str) -> dict[str, float]:
    """The exponential of the mean loss of a text, by a name for readers; empty without a curve to the last step.

    The loss of a text is the mean over its next tokens. It is also empty if scores are charged, since a curve reads
    public records alone, and if an average of the weights is kept, since the curve is that of the last weights.
    """
    result, config = sweep.results_by_trial.get(trial), sweep.trial_with_id(trial).config
    if result is None or sweep.has_private_scores or sweep.score_label != NEXT_TOKEN_ACCURACY or config.get("ema"):
        return {}
    last: dict[str, float] = next(iter(result.curator.get("curve", ())[-1:]), {})
    if last.get("step") != config["steps"]:
        return {}
    losses = {name: last[loss] for loss, name in _LOSSES.items() if last.get(loss) is not None}
    return {name: math.exp(loss) if loss < _LARGEST else math.inf for name, loss in losses.items()}


def error_messages_of_failed_runs(sweep: Sweep) -> tuple[str, ...]:
    """The error messages of failed runs, in the table's order; for the curator only."""
    messages = zip(sweep.run_labels, sweep.all_run_rows["error"], strict=True)
    noun = sweep.runs.noun.capitalize()
    return tuple(
        f"{'Final run' if label == FINAL else f'{noun} {label}'}: {error}"
        for label, error in messages
        if error is not None
    )


def budget_bar_segments(bill: Bill, facts: Mapping[str, Fact]) -> tuple[Segment, ...]:
    """The account's epsilon as a bar: other sweeps, this one, and the remaining budget.

    Empty for data declared public, whose budget is infinite. Where an account adds up Renyi divergences, its charges
    alone are more than the budget that they take, and the bar is as long as its parts.
    """
    if math.isinf(bill.budget[0]):
        return ()
    parts = (
        ("other sweeps", Tone.OTHERS, bill.others[0], facts["other_epsilon"].text),
        ("this sweep", Tone.OWN, bill.epsilon, facts["honest_epsilon"].text),
        ("left", Tone.LEFT, bill.left[0], facts["left_epsilon"].text),
    )
    segments = bar_segments(parts, max(bill.budget[0], sum(value for _, _, value, _ in parts)))
    return tuple(segment for segment in segments if segment.share > 0 or segment.tone is Tone.LEFT)


def bar_segments(parts: Iterable[tuple[str, Tone, float, str]], whole: float) -> Iterator[Segment]:
    """A segment after the other for parts of a whole: each part's name, meaning, value and text."""
    start = 0.0
    for name, tone, value, text in parts:
        share = value / whole if whole > 0 else 0.0
        yield Segment(name=name, tone=tone, start=start, share=share, text=text)
        start += share


def unfinished_run_texts(facts: Mapping[str, Fact]) -> tuple[str, ...]:
    """Runs without a finished result, in words; empty if all finished."""
    meanings = {
        State.DIVERGED: "diverged: parameters became infinite or NaN, or the model came to mix records",
        State.FAILED: "failed with an error",
        State.KILLED: "started but without a result: killed, or still running",
        State.NOT_RUN: "never started",
    }
    texts = [
        f"{facts[f'points_{state.name.lower()}'].text} {meaning}"
        for state, meaning in meanings.items()
        if facts[f"points_{state.name.lower()}"].value
    ]
    if facts["runs_to_come"].value:
        texts.append(f"{facts['runs_to_come'].text} not proposed yet")
    repeats = facts["repeats_charged"]
    return (*texts, f"{repeats.text} charged again for a repeat") if repeats.value else tuple(texts)


def _setting_texts_of_point(sweep: Sweep, trial: str) -> tuple[tuple[str, str], ...]:
    """A point's swept values, and its noise multiplier if points differ in it."""
    row = sweep.row_of_trial(trial)
    settings = {axis_label(key): setting_text(row[key]) for key in sweep.swept_keys if row[key] is not None}
    noise = row["noise_multiplier"]
    planned = {first_noise_multiplier(trial) for trial in sweep.plan.all_runs} - {None}
    if noise is not None and len(planned) > 1:
        settings["noise_multiplier"] = noise_text_rounded_down(noise)
    return tuple(settings.items())


def search_headline_text(sweep: Sweep, facts: Mapping[str, Fact]) -> str:
    """The search in one line: points, methods, models, steps and batch size."""
    plan = sweep.plan.trials
    methods = [method_label(name) for name in dict.fromkeys(trial.method for trial in plan)]
    models = dict.fromkeys(class_name_without_module(trial.config.get("model", {})) for trial in plan)
    features = FrozenFeatures.from_trial_config(plan[0].config)
    batches = dict.fromkeys(trial.config.get("sampler", {}).get("batch_size") for trial in sweep.plan.all_runs)
    sizes = [setting_text(batch) for batch in batches if batch is not None]
    parts = [
        sweep.shown.among + sweep.shown.points_text(methods) + (" and a final run" if sweep.rule.final_run else ""),
        notation.enumeration_text([model for model in models if model]),
        "" if features is None else f"frozen features by {features.label}",
        f"{facts['steps'].text} steps" if "steps" in facts else "",
        f"expected batch size {notation.enumeration_text(sizes)}" if sizes else "",
    ]
    return " · ".join(part for part in parts if part)


COMMAND_FILE = "multirun.yaml"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The data needed to repeat a sweep and to find its charge, for the curator's page."""

    command: str
    folder: str
    plan: str
    ledger_head: str
    verified: str
    versions: tuple[tuple[str, str], ...]
    devices: tuple[str, ...]
    began: str
    ended: str


def read_origin(sweep: Sweep, ledger: Ledger) -> Origin:
    """Collects the provenance from Hydra's record, the plan, the ledger and the results."""
    results = sweep.results_by_trial.values()
    versions: dict[str, dict[str, None]] = {}
    for result in results:
        for name, version in result.versions.items():
            versions.setdefault(name, {})[version] = None
    return Origin(
        command=read_sweep_command_line(sweep),
        folder=shlex.quote(str(sweep.folder.absolute())),
        plan=sweep.plan_id,
        ledger_head=sweep.account.entries[-1].digest,
        verified=verification_result_sentence(sweep, ledger),
        versions=tuple((name, ", ".join(numbers)) for name, numbers in versions.items()),
        devices=tuple(dict.fromkeys(result.device for result in results)),
        began=min((result.started for result in results), default=""),
        ended=max((result.ended for result in results), default=""),
    )


def program_version() -> str:
    """The version of dpsweep that writes a page."""
    return metadata.version("dpsweep")


def verification_result_sentence(sweep: Sweep, ledger: Ledger) -> str:
    """The result of `dpsweep verify` on the folder, or its error."""
    try:
        return verify_sweep_folder_and_describe(sweep.folder, ledger).removeprefix(f"{sweep.folder}: ")
    except DpsweepError as error:
        return str(error)


def read_sweep_command_line(sweep: Sweep) -> str:
    """The command line, empty if Hydra left no record of it."""
    try:
        record = yaml.safe_load((sweep.folder / COMMAND_FILE).read_text())
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return ""
    words = _node_of_record(record, "hydra", "overrides", "task")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return ""
    verb = "rehearse" if is_rehearsal_plan(sweep.plan) else "sweep"
    return shlex.join(["dpsweep", verb, *_config_folder_option(record), *words])


def _config_folder_option(record: object) -> list[str]:
    """The option with the user's folder of configurations, empty if the command named none."""
    sources = _node_of_record(record, "hydra", "runtime", "config_sources")
    for source in sources if isinstance(sources, list) else ():
        path = _node_of_record(source, "path")
        if _node_of_record(source, "provider") == "command-line" and isinstance(path, str):
            return ["--config-dir", path]
    return []


def _node_of_record(record: object, *keys: str) -> object:
    """The node below these keys, None if there is none."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record
