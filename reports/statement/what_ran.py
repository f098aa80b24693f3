"""The statement's lines on what ran: charges, sampling, randomness, the final run, and floating-point noise.

With them, what dpsweep did not train: scripts of the curator's own, of which it is said what was checked and what was
not; initial weights, frozen features, base models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from dpsweep.accounting.events.build import NUMBERS_OF_COUNT, number_of_rounded_numbers
from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.notation import text_with_all_digits
from dpsweep.accounting.profiles.privacy_profiles import LOG_RATIO
from dpsweep.accounting.selection.interface import FinalRun
from dpsweep.accounting.stored_names.stored_classes import class_name_without_module, tag_or_path_of_class
from dpsweep.accounting.stored_names.tags import tag_of_path
from dpsweep.reports.content.audience import Audience
from dpsweep.reports.content.formatting import count_text, enumeration_text
from dpsweep.reports.content.sweep_table import Conduct
from dpsweep.reports.content.trial_config import BaseModel, FrozenFeatures, adapter_in_words, user_scripts_of_plan
from dpsweep.reports.statement.statement_line import Context, EvidenceLevel, Line

SHARED = (
    "Runs on the same subsamples are priced as one mechanism with the sum of their precisions (1 / noise variance); "
    "priced as independent runs, they would seem cheaper than they are."
)


def line_on_whether_every_run_was_charged(context: Context) -> Line:
    """The line on charges: no run started without one."""
    table = context.sweep.all_run_rows
    uncharged = [
        str(row["trial"])
        for row in table.to_dict("records")
        if row["attempts_started"] > row["attempts_charged"]
        or (row["trial"] in context.sweep.results_by_trial and not row["attempts_started"])
    ]
    if uncharged:
        return EvidenceLevel.VIOLATED.make_statement_line(
            "Charges",
            f"{context.row_count_text(len(uncharged))} ran without a charge: the claim does not hold.",
            *context.evidence_if_reader_is_curator(*uncharged),
        )
    facts = context.facts
    runs_charged, runs_started = facts["runs_charged"].text, facts["runs_started"].text
    return EvidenceLevel.CHECKED.make_statement_line(
        "Charges",
        context.sweep.shown.charged,
        *context.evidence_if_reader_is_curator(
            context.sweep.shown.starts.format(charged=runs_charged, started=runs_started),
            f"The ledger's hash chain of {context.sweep.entries} lines verifies.",
        ),
    )


def sampling_line(context: Context) -> Line:
    """The line on sampling and noise: each step as declared, and as the runs report it."""
    conducts, shared = Counter(context.sweep.all_run_rows["conduct"]), context.sweep.plan.has_shared_subsamples
    reports = [
        f"{context.row_count_text(conducts[conduct])}: {conduct.value}." for conduct in Conduct if conducts[conduct]
    ]
    level, verdict = EvidenceLevel.CHECKED, "The runs match their charge."
    if conducts[Conduct.OTHERWISE]:
        level, verdict = EvidenceLevel.VIOLATED, "A run differs from its charge."
    elif context.audience is Audience.PUBLIC:
        verdict = "Every run that reported its steps matches its charge."
    elif conducts[Conduct.UNKNOWN]:
        level, verdict = EvidenceLevel.ASSUMED, "The runs match their charge; a failed run left no report."
    return level.make_statement_line(
        "Sampling and noise",
        f"{declared_training_text(context)} {verdict}",
        *((SHARED,) if shared else ()),
        *context.evidence_if_reader_is_curator(*reports),
    )


def declared_training_text(context: Context) -> str:
    """What the runs were declared to do: batches, noise and steps."""
    facts, unit, batches = context.facts, context.sweep.plan.unit, _batch_drawing_text(context)
    if batches:
        schedule = f", relative to a clip norm by schedule ({facts['bounds'].text})" if "bounds" in facts else ""
        correlated = f", correlated over steps by a matrix of {facts['bands'].text} bands" if "bands" in facts else ""
        lost = f", and up to {facts['lost_steps'].text} more if a crash repeats them" if "lost_steps" in facts else ""
        return (
            f"Each step takes {batches} and adds Gaussian noise of multiplier {facts['noise_multiplier'].text}"
            f"{schedule}{correlated}; {facts['steps'].text} steps a run{lost}."
        )
    if "minimised_noise" in facts:
        return (
            f"Each run minimises a strongly convex loss over all training {unit}s and adds Gaussian noise once to the "
            f"minimiser; the noise's standard deviation is {facts['minimised_noise'].text} times the largest distance "
            f"that one {unit} can move the minimiser."
        )
    return "The runs are described by their events in the plan."


def _batch_drawing_text(context: Context) -> str:
    """How a step draws its batch; empty for events without a sampler."""
    facts, unit = context.facts, context.sweep.plan.unit
    batches = []
    if "sample_rate" in facts:
        same = ", the same ones for all runs," if context.sweep.plan.has_shared_subsamples else ""
        batches.append(f"every training {unit} independently with probability {facts['sample_rate'].text}{same}")
    if "cycles" in facts:
        batches.append(f"every training {unit} of one of {facts['cycles'].text}, the parts in turn,")
    if "batches" in facts:
        batches.append(f"exactly {facts['batches'].text} training {unit}s, drawn without replacement,")
    if "epochs" in facts:
        batches.append(
            f"its share of the training {unit}s (each {unit} is in one of every {facts['epochs'].text} steps)"
        )
    if "allocations" in facts:
        batches.append(
            f"its share of the training {unit}s (each {unit} is in a secret, random one of every "
            f"{facts['allocations'].text} steps)"
        )
    return " or ".join(batches)


def randomness_line(context: Context) -> Line:
    """The line on randomness; a run with a known seed is not a private release."""
    if context.sweep.is_noise_reproducible:
        return EvidenceLevel.VIOLATED.make_statement_line(
            "Randomness",
            "Declared reproducible: NOT a private release. A reader who knows the seed can remove the noise.",
        )
    results = len(context.sweep.results_by_trial)
    return EvidenceLevel.CHECKED.make_statement_line(
        "Randomness",
        "Sampling and noise come from secret entropy of the operating system, which is not recorded.",
        *context.evidence_if_reader_is_curator(f"This was checked in {count_text(results, 'result')}."),
    )


def final_run_lines(context: Context) -> tuple[Line, ...]:
    """The line on the final run: the records that it read, and its share of the price; none under a rule without one.

    The share is told where search and final run read different records, so that no single price covers both.
    """
    plan, run, facts = context.sweep.plan, context.sweep.rule.final_run, context.facts
    if run is None:
        return ()
    words = {
        "unit": plan.unit,
        "key": "its position" if plan.adjacency is Adjacency.REPLACE_ONE else f"the {plan.unit} itself",
    }
    evidence = [sentence.format(**words) for sentence in _evidence_on_final_run(run)]
    if "final_epsilon" in facts:
        search, final = (facts[f"{who}_epsilon"].text for who in ("search", "final"))
        apart = (
            f"The search costs epsilon {search}, the final run {final}; the claim is the larger, not the sum: no "
            f"{plan.unit} is in both parts (adaptive parallel composition, McSherry 2009, Theorem 4)."
        )
        evidence = [apart, *evidence]
    sentences = _sentences_on_final_run(run).format(**words)
    return (EvidenceLevel.CHECKED.make_statement_line("Final run", sentences, *evidence),)


def _sentences_on_final_run(run: FinalRun) -> str:
    """The records that the search and the final run read; `{unit}` and `{key}` are to be filled in."""
    if run.share is None:
        return (
            "The best point ran once more on the same {unit}s. Its price is part of the claim, and its score is not "
            "the best of several."
        )
    if run.is_secret:
        return (
            "The search read a secret random part of the {unit}s: each {unit} joined it with probability "
            f"{run.share:g}, by a coin of its own. The winner then ran once more, on all "
            f"{'' if run.reads_all else 'other '}{{unit}}s."
        )
    return (
        f"The search read one part of the {{unit}}s, about {run.share:.0%}; the best point then ran once more on all "
        "others. The part of a {unit} depends on {key} and a public key alone."
    )


def _evidence_on_final_run(run: FinalRun) -> Iterator[str]:
    """What the claim, the score and the learning rate of a final run on records of its own rest on."""
    if run.is_secret:
        yield (
            "The claim is the composition of the search, amplified by the sampling of its part, and of the final run "
            "(Balle, Barthe, Gaboardi 2018, Theorem 8; Koskela and Kulkarni 2023)."
        )
        yield (
            "The coins come from 256 secret random bits, which are drawn once, before the first run, and stay with the "
            "curator."
        )
    elif run.share is not None:
        yield (
            "The final run's score comes from units that the search has not read; unlike the best score of the map, it "
            "is not the best of several."
        )
    if run.carry is not None:
        best = "the winner's" if run.is_secret else "the best one"
        yield (
            f"The learning rate of the final run is {best} times (the ratio of noise per {{unit}}) to the power "
            f"{run.carry:g}, as the plan declares."
        )


UNITS = 46_340
"""The square root of 2**31: the largest sum whose rounding the margin of `trainers/methods/transforms.py` covers."""

RESOLVED = 1e-15
TINY = "; a claim at a delta below that takes them, and the secret number of tries, as exact"
"""The smallest delta that draws of 53 random bits resolve, and what a smaller one assumes."""

_BASIS = (
    "Noise is drawn in float64 by AES and added to sums in float64; the noisy sum is rounded to a lattice whose "
    f"spacing depends on the noise alone. The probability of each noisy number is within a factor of "
    f"exp({LOG_RATIO:.2g}) of its probability under exact noise, that of a count within exp({32 * LOG_RATIO:.2g}) "
    "(Mironov 2012 shows how other floating-point noise leaks). The price of one try includes these factors, before "
    "the rule by which the search chooses (Dwork, Rothblum, Vadhan 2010, Theorem III.3)."
)
_ASSUMED = (
    "This assumes that the processor rounds as IEEE 754 requires and that the output of AES cannot be distinguished "
    "from random bits. When a {unit} is added, as many held-out records as it has change their place in the scoring: "
    "their float32 numbers may be rounded differently. Sampling probabilities are exact to about 1e-15{tiny}. Sums of "
    "more than {units:,} {unit}s a step may round by more than the margin by which contributions are shortened."
)


def floating_point_line(context: Context) -> Line:
    """The line on floating point: the noisy numbers of a run, whose rounding the claim includes.

    A delta below the resolution of uniform draws of 53 bits adds an assumption.
    """
    sweep, bill = context.sweep, context.bill
    tiny = TINY if 0 < bill.delta < RESOLVED else ""
    runs = sweep.plan.all_runs
    steps = max(max(trial.config["steps"], trial.priced_steps) for trial in runs)
    weights = max(trial.config.get("weights", 0) for trial in runs)
    scores = [trial.event.validation for trial in runs if trial.event.validation is not None]
    counts = max(map(number_of_rounded_numbers, scores), default=0) // NUMBERS_OF_COUNT
    card = 0 if sweep.plan.card is None else sweep.plan.card.counts
    parts = [f"{count_text(weights, 'number')} in each of at most {count_text(steps, 'step')}"]
    parts += [f"{count_text(counts, 'count')} of its score"] if counts else []
    parts += [f"{count_text(card, 'count')} of the card"] if card else []
    return EvidenceLevel.ASSUMED.make_statement_line(
        "Floating point",
        f"The claim includes the rounding of noise: for each run that of {enumeration_text(parts)}.",
        _BASIS,
        _ASSUMED.format(unit=sweep.plan.unit, units=UNITS, tiny=tiny),
    )


NOT_CHECKED = (
    "declared by the script, not checked: that each {unit}'s gradient is clipped, that the noise was added and is "
    "secret, how batches were drawn, that a prediction depends on one {unit} alone, and that the {unit}s to be scored "
    "were not trained on"
)
CHECKED = (
    "Checked: the script's checksum, and the noise multiplier, the sampling rate and the number of steps that its "
    "accountant reported."
)
REPORTED = "The noise multiplier, the sampling rate and the steps are those that the script's accountant reported."
ASSUMED_PREDICTIONS = "Each prediction of the script is assumed to depend on one {unit} alone: it is not checked."


def script_line(context: Context) -> Iterator[Line]:
    """The line that names the scripts; none if dpsweep trained all models."""
    scripts = user_scripts_of_plan(context.sweep.plan)
    if scripts:
        unit = context.sweep.plan.unit
        yield EvidenceLevel.ASSUMED.make_statement_line(
            "Script",
            f"The models were trained by {enumeration_text([script.label for script in scripts])}, which is not part "
            f"of dpsweep. {CHECKED} {NOT_CHECKED[0].upper()}{NOT_CHECKED[1:].format(unit=unit)}.",
            "A script that lies to its accountant, or reads other files, is not detected.",
            "Modules that the script imports are not part of its checksum.",
            "The script's output files are released as they are: nothing is known of their content.",
            "The data that the script's initial weights were trained on, if any, are assumed to be public.",
        )


def line_weakened_to_declared_by_scripts(context: Context, line: Line, note: str) -> Line:
    """A checked line of a sweep by scripts: it rests on what they declare."""
    if not user_scripts_of_plan(context.sweep.plan):
        return line
    level = EvidenceLevel.ASSUMED if line.level is EvidenceLevel.CHECKED else line.level
    return replace(line, level=level, evidence=(*line.evidence, note.format(unit=context.sweep.plan.unit)))


def script_randomness_line(context: Context) -> Line | None:
    """The line on a script's randomness; None if dpsweep drew all of it, or if it was declared reproducible."""
    if context.sweep.is_noise_reproducible or not user_scripts_of_plan(context.sweep.plan):
        return None
    return EvidenceLevel.ASSUMED.make_statement_line(
        "Randomness",
        "The noise of scores comes from secret entropy of the operating system. The script draws the batches and the "
        "noise of steps; both are declared secret, which is not checked.",
    )


def script_rounding_line(context: Context) -> Line | None:
    """The line on a script's floating-point noise; None if dpsweep drew all noise."""
    if not user_scripts_of_plan(context.sweep.plan):
        return None
    return EvidenceLevel.ASSUMED.make_statement_line(
        "Floating point",
        "The script's Gaussian noise is assumed to be exact: how it is drawn and rounded is not checked.",
        "The low bits of float32 noise may reveal whether a record was present (Mironov 2012).",
    )


PUBLISHED = "bert"
"""Our model that starts from published pretrained weights."""


def pretrained_weights_sentences(context: Context) -> tuple[str, ...]:
    """The models that start from pretrained weights, which are assumed to be public."""
    models = (trial.config.get("model", {}) for trial in context.sweep.plan.trials)
    pretrained = [
        class_name_without_module(model)
        for model in models
        if tag_of_path(tag_or_path_of_class(model)) is None or tag_or_path_of_class(model) == PUBLISHED
    ]
    if not any(pretrained):
        return ()
    return (
        f"The initial weights of {enumeration_text(list(dict.fromkeys(pretrained)))}, frozen ones included, are "
        "assumed to be public: no guarantee covers the data that they were trained on.",
    )


def frozen_features_line(context: Context) -> Iterator[Line]:
    """The line on frozen features: their extractor, its public training data and its checksum."""
    features = FrozenFeatures.from_trial_config(context.sweep.plan.trials[0].config)
    if features is not None and not features.has_weights:
        yield EvidenceLevel.STATED.make_statement_line(
            "Features",
            f"A model's inputs are features by {features.label}, a formula for which no data were used.",
            "The features of each record are computed from this record alone and scaled to norm "
            f"{text_with_all_digits(features.row_norm)}.",
        )
    elif features is not None:
        yield EvidenceLevel.ASSUMED.make_statement_line(
            "Features",
            f"A model's inputs are frozen features by {features.label}, which was trained on "
            f"{features.trained_on}. These data are declared public: no guarantee covers them.",
            f"The weights have sha256 {features.sha256}. The features of each record are computed from this record "
            f"alone and scaled to norm {text_with_all_digits(features.row_norm)}.",
        )


def base_model_lines(context: Context) -> Iterator[Line]:
    """The lines on pretrained folders: their names, licences and checksums, and which weights training changes."""
    configs = [trial.config for trial in context.sweep.plan.trials]
    bases = {base.sha256: base for config in configs if (base := BaseModel.from_trial_config(config)) is not None}
    for base in bases.values():
        yield EvidenceLevel.ASSUMED.make_statement_line(
            "Base model",
            f"The model starts from the weights of {base.name} (licence: {base.licence}). They are declared "
            "public: no guarantee covers the data that they were trained on.",
            f"The files of weights have sha256 {base.sha256}.",
        )
    adapters = dict.fromkeys(words for config in configs if (words := adapter_in_words(config)) is not None)
    for words in adapters:
        yield EvidenceLevel.CHECKED.make_statement_line(
            "Adapter",
            f"Training changes {words}, and what the model declares trainable. All other weights stay as published.",
            "Each job compared all frozen weights, bit by bit, and the file of weights with what it trained.",
        )
