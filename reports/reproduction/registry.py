"""The registry: every claim on results of training, who makes it, the columns that it needs, and its criterion.

Invariant: a claim is tested on every stored table that has its columns, whatever figure the table was made for; the
summary counts over tables. A new claim is a row of `CLAIMS`, a new table needs no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from dpsweep.reports.content.formatting import enumeration_text, method_label
from dpsweep.reports.reproduction import claims, rate_claims
from dpsweep.reports.reproduction import learning_curves as learning
from dpsweep.reports.reproduction.claims import (
    ADAM,
    AVERAGED,
    BEST_CONSTANT,
    BETTER,
    BOTH,
    CLOSE,
    DEFAULT,
    DEPENDS,
    FALLING,
    FEW,
    FLAT,
    LARGE,
    MOMENTUM,
    PLAIN,
    TUNED,
    WOSM,
)
from dpsweep.reports.reproduction.finding import ClaimEvidence, Finding, Margin, Reproduction, Trained
from dpsweep.reports.reproduction.results import (
    SearchResults,
    rows_at_evenly_spaced_steps,
    rows_of_first_recorded_step,
    table_with_row_per_recorded_step,
)
from dpsweep.reports.statistics.point_scores import CLIP, LR, METHOD, NOISE, REGULARIZER, STEPS
from dpsweep.reports.statistics.score_grid import FEWEST_ROWS

YANG, MOHAPATRA, YU = "Yang et al. 2022", "Mohapatra et al. 2022", "Yu et al. 2019"

LEAST = "clip_schedule.least"
COEFFICIENT = 0.6

METHODS = {
    ("dpsgd", False): PLAIN,
    ("dpmomentum", False): AVERAGED,
    ("dpsgd", True): FALLING,
    ("dpmomentum", True): BOTH,
}

Rows = Callable[[SearchResults], pd.DataFrame]


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A claim in words, who makes it, and its criterion.

    `needs` names, by method, the columns in which that method's rows must have several values, and `lacks` those in
    which they must not; `rows` are the rows that `weigh` tests. `ours` says that no paper makes the claim.
    """

    topic: str
    claim: str
    criterion: str
    paper: str
    where: str
    needs: Mapping[str, Sequence[str]]
    rows: Rows
    weigh: Callable[[pd.DataFrame], ClaimEvidence]
    lacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ours: bool = False

    def finding(self, results: SearchResults) -> Finding | None:
        """The claim tested on the table of a search; None if the table lacks its columns."""
        rows = self.rows(results)
        by_method = {method: rows[rows[METHOD] == method] for method in (*self.needs, *self.lacks)}
        if not all(_varies(by_method[method], columns) for method, columns in self.needs.items()) or any(
            _varies(by_method[method], columns) for method, columns in self.lacks.items()
        ):
            return None
        evidence = self.weigh(rows)
        return Finding(
            topic=self.topic,
            claim=self.claim,
            criterion=self.criterion,
            numbers="; ".join(part.text for part in evidence.parts) or "nothing to estimate it from",
            verdict=evidence.verdict,
            paper=self.paper,
            where=self.where,
            ours=self.ours,
            parts=evidence.parts,
            remark=evidence.remark,
            flip=evidence.flip_text,
        )


def _varies(rows: pd.DataFrame, columns: Sequence[str]) -> bool:
    return len(rows) > 0 and all(name in rows and rows[name].nunique() > 1 for name in columns)


def findings_on_results(results: SearchResults) -> tuple[Finding, ...]:
    """Every claim whose columns the table has, tested on it."""
    return tuple(finding for claim in CLAIMS if (finding := claim.finding(results)) is not None)


def reproduction_of_results(figure: Trained, results: SearchResults) -> Reproduction:
    """A figure with training: what it makes, the search's price, and every claim that its table can test."""
    return figure.make(results, findings_on_results(results))


MARGINS: tuple[Margin, ...] = (
    *(BETTER, claims.ABOVE, CLOSE, claims.NO_WORSE, FLAT, DEPENDS, claims.HELPS_LITTLE),
    *(rate_claims.INVERSE, rate_claims.INVERSE_TO_NOISE, rate_claims.FREE),
    *(learning.FLAT, learning.LOWER, learning.ROUGHER, learning.HALVED),
)
"""The margins of all claims, each once."""


def _final_rows(results: SearchResults) -> pd.DataFrame:
    return results.table


BEST_ACCURACY = {
    "adult": 11_360 / 15_060,
    "cifar10": 1000 / 10_000,
    "mnist": 1135 / 10_000,
    "mnist_4_9": 1009 / 1991,
    "sst2": 444 / 872,
}
"""The accuracy of always saying the most frequent class of a data set's public test records."""

BEST_LOSS = {"enron": 0.60217, "regression": 2.60126}
"""The training loss of the best constant predictor: with 1500 of 5172 mails spam, and half the targets' variance."""


def _rows_of_slopes(results: SearchResults) -> pd.DataFrame:
    """The final rows, scored by their last training loss where it was recorded, with the best constant predictor's."""
    account = results.facts.account
    if not len(learning.runs_with_curves(results)):
        return results.table.assign(**{BEST_CONSTANT: BEST_ACCURACY.get(account, math.nan)})
    constant = -math.log10(BEST_LOSS.get(account, math.nan))
    return learning.table_scored_by_last_loss(results).drop(columns="loss").assign(**{BEST_CONSTANT: constant})


def _rows_of_many_noises(results: SearchResults) -> pd.DataFrame:
    """Those rows, where there are noise multipliers enough for a slope."""
    rows = _rows_of_slopes(results)
    return rows if rows[NOISE].nunique() >= FEWEST_ROWS else rows[:0]


def _rows_of_lengths(results: SearchResults) -> pd.DataFrame:
    looks = table_with_row_per_recorded_step(results)
    return rows_at_evenly_spaced_steps(looks) if len(looks) else looks


def _rows_of_first_step(results: SearchResults) -> pd.DataFrame:
    looks = table_with_row_per_recorded_step(results)
    return rows_of_first_recorded_step(looks) if looks[STEPS].nunique() > 1 else looks[:0]


def _rows_of_all_methods(results: SearchResults, *methods: str) -> pd.DataFrame:
    rows: pd.DataFrame = results.table[results.table[METHOD].isin(methods)]
    return rows


def rows_by_names_of_yu(results: SearchResults) -> pd.DataFrame:
    """The runs of Yu, Zhang and Chen's methods by their names, those with another momentum than theirs left out.

    In a search without a schedule of clip norms, they stay.
    """
    table = results.table
    falls = table[LEAST].astype(float) < 1 if LEAST in table else pd.Series(False, index=table.index)
    momentum = table[MOMENTUM].astype(float) if MOMENTUM in table else pd.Series(math.nan, index=table.index)
    kinds = zip(table[METHOD], falls, strict=True)
    names = pd.Series([METHODS.get(kind) for kind in kinds], index=table.index, dtype=object)
    kept = (momentum.isna() | (momentum == COEFFICIENT)) & names.notna()
    rows: pd.DataFrame = table.assign(method=names)[kept]
    return rows


def _claims_on_normalization(normalized: str, clipped: str, *, ours: bool) -> Iterable[PaperClaim]:
    """Three claims on a normalized method and its clipped twin."""
    one, other = method_label(normalized), method_label(clipped)
    needs = {normalized: (LR, REGULARIZER), clipped: (LR, CLIP)}
    make = partial(PaperClaim, paper=YANG, needs=needs, rows=_final_rows, ours=ours)
    yield make(
        topic=f"{one} is easier to tune than {other}",
        where="Figure 5" if ours else "abstract, Figures 3 and 4",
        claim=f"{one} is stable in regularizer and learning rate, so that it is easier to tune than {other}.",
        criterion=f"the mean best score of {' and of '.join(map(str, FEW))} random points is {BETTER.range_text} above "
        f"that of {other}, in the mean over all draws of the grid's points",
        weigh=partial(claims.evidence_that_normalized_tunes_easier, normalized=normalized, clipped=clipped),
    )
    yield make(
        topic=f"{one} is stable in r, {other} depends on c",
        where="Figure 5" if ours else "Figures 3 and 4",
        claim=f"{one} is rather stable in its regularizer r, while {other} depends on learning rate and clip norm c.",
        criterion=f"r, alone and together with lr, explains {FLAT.range_text} of the variance over the grid, and c "
        f"{DEPENDS.range_text} more",
        weigh=partial(claims.evidence_that_regularizer_matters_little, normalized=normalized, clipped=clipped),
    )
    yield make(
        topic=f"The best of {one} and {other} are close",
        where="Figure 5" if ours else "abstract, Figures 3 and 4",
        claim=f"At their best, {one} and {other} reach about the same accuracy.",
        criterion=f"best scores differ by {CLOSE.range_text}, on grids whose points differ by more than noise",
        weigh=partial(claims.evidence_that_best_scores_are_close, methods=(normalized, clipped)),
    )


def _claims_on_curves(clipped: str, normalized: str) -> Iterable[PaperClaim]:
    """The claims on learning curves without noise, or with it."""
    clip, normal = learning.family_of_clipping_method(clipped), learning.family_of_normalizing_method(normalized)
    make = partial(
        PaperClaim,
        paper=YANG,
        needs={clipped: (CLIP,), normalized: (REGULARIZER,)},
        rows=learning.runs_with_curves,
    )

    def on_courses(weigh: Callable[..., ClaimEvidence]) -> Callable[[pd.DataFrame], ClaimEvidence]:
        return lambda runs: weigh(clip.tuned_learning_curves(runs), normal.tuned_learning_curves(runs))

    yield make(
        topic="A small c or r keeps the training loss high",
        where="Section 3.4, Figures 1 and 2",
        claim="A small r or a small c induces large biases and keeps the loss from dropping sharply; large ones reduce "
        "them.",
        criterion=f"both methods' last training loss at the largest value is {learning.LOWER.range_text} below that at "
        "the smallest",
        weigh=on_courses(lambda c, r: learning.evidence_that_bounding_raises_loss({clip: c, normal: r})),
    )
    yield make(
        topic="Accuracy curves vary with c and hardly with r",
        where="Section 3.4, Figures 1 and 2",
        claim="The accuracy curves vary with c under clipping, while r makes almost no impact on those of "
        "normalization.",
        criterion="averaged over the second half of the recorded steps, the accuracies of all r are within "
        f"{learning.FLAT.range_text} of each other, and {BETTER.range_text} closer than those of all c",
        weigh=on_courses(learning.evidence_that_accuracy_is_flat_in_r),
    )
    if clipped == "dpsgd":
        yield make(
            topic="With a small r the loss fluctuates more than under clipping",
            where="Figure 2",
            claim="The training loss of normalization with r = 0.01 fluctuates more than that of clipping with c = 1.",
            criterion="the mean absolute second difference of the recorded training losses, relative to their mean, is "
            f"{learning.ROUGHER.range_text} larger, in the geometric mean over the repetitions",
            weigh=on_courses(partial(learning.evidence_that_small_r_fluctuates, c=1.0, r=0.01)),
        )


def _claims_on_rates() -> Iterable[PaperClaim]:
    """The claims on learning rates and clip norms."""
    slope = "best lr ~ {}^e with e from {}, by the training loss where it was recorded, else by the score; {}"
    by_clip_norm = rate_claims.READ_FROM.format(rows="clip norms")
    make = partial(PaperClaim, paper=MOHAPATRA, rows=_rows_of_slopes)
    yield make(
        topic="DP-SGD's best lr falls as 1 / c",
        where="Theorem 5.1, Figures 2 and 4; Yang et al. 2022, Section 3.4",
        claim="DP-SGD's best losses lie on a diagonal: the best learning rate is inversely proportional to the clip "
        "norm.",
        criterion=slope.format("c", rate_claims.INVERSE.range_text, by_clip_norm),
        needs={"dpsgd": (LR, CLIP)},
        weigh=partial(rate_claims.evidence_on_rate_by_clip_norm, method="dpsgd", margin=rate_claims.INVERSE),
    )
    yield make(
        topic="DP-Adam's best lr does not depend on c",
        where="Figures 3 and 5",
        claim="DP-Adam has no such diagonal: good learning rates are the same for a wide range of clip norms.",
        criterion=slope.format("c", rate_claims.FREE.range_text, by_clip_norm),
        needs={ADAM: (LR, CLIP)},
        weigh=partial(rate_claims.evidence_on_rate_by_clip_norm, method=ADAM, margin=rate_claims.FREE),
    )
    yield PaperClaim(
        topic="Half of DP-SGD's learning rates can be left out",
        paper=MOHAPATRA,
        where="Figure 10",
        claim="Some learning rates of DP-SGD's grid perform poorly throughout and can be pruned.",
        criterion=f"at least half of the learning rates are, by their best clip norm, {BETTER.range_text} below the "
        "best of all at every length; in direction, at least one is",
        needs={"dpsgd": (LR, CLIP, STEPS)},
        rows=_rows_of_lengths,
        weigh=rate_claims.evidence_that_many_rates_are_prunable,
    )


def _claims_on_noise() -> Iterable[PaperClaim]:
    """The claims on learning rates and sizes of batches against the noise."""
    for method, theorem, key in (("dpnsgd", "3.2", REGULARIZER), ("dpsgd", "3.4", CLIP)):
        yield PaperClaim(
            topic=f"{method_label(method)}'s best lr falls as 1 / noise",
            paper=YANG,
            where=f"Theorem {theorem}",
            claim="The learning rate of the theorem is inversely proportional to the noise multiplier, all else equal.",
            criterion=f"best lr ~ noise^e with e from {rate_claims.INVERSE_TO_NOISE.range_text}; "
            + rate_claims.READ_FROM.format(rows="noise multipliers"),
            needs={method: (LR, NOISE)},
            rows=_rows_of_many_noises,
            weigh=partial(
                rate_claims.evidence_on_rate_by_noise, method=method, key=key, margin=rate_claims.INVERSE_TO_NOISE
            ),
        )
    yield PaperClaim(
        topic="The size of batches does not matter to DP-NSGD at equal noise of their mean",
        paper=YANG,
        where="Remark A.1",
        claim="The size of batches does not affect the expected upper bounds, because single gradients are normalized.",
        criterion=f"wherever sizes share the noise multiplier over the size, their best scores differ by "
        f"{CLOSE.range_text}, among points that differ by more than noise",
        needs={"dpnsgd": (LR, rate_claims.BATCH, rate_claims.NOISE_OF_MEAN)},
        rows=rate_claims.rows_with_noise_of_mean,
        weigh=partial(rate_claims.evidence_that_batch_size_matters_little, method="dpnsgd"),
    )


def _claims_on_adam() -> Iterable[PaperClaim]:
    """The claims on DP-Adam beside tuned methods."""
    three = (*TUNED, ADAM)
    labels = [method_label(method) for method in three]
    tuned = dict.fromkeys(TUNED, (LR, CLIP))
    make = partial(PaperClaim, paper=MOHAPATRA)
    subpar = f"its best score is {BETTER.range_text} above the others' mean best score over all draws of as many points"
    yield make(
        topic="A few candidates of DP-Adam beat as many of DP-SGD and DP-Momentum from pruned grids",
        where="Section 6, Figure 7; Figures 11 and 12",
        claim="For the same privacy, DP-Adam at its default learning rate beats as many random candidates of the "
        "others, even after learning rates of theirs that perform poorly were pruned.",
        criterion=f"{subpar} of grids without the learning rates that are the best at no recorded step",
        needs={ADAM: (CLIP, STEPS), **dict.fromkeys(TUNED, (LR, CLIP, STEPS))},
        rows=table_with_row_per_recorded_step,
        weigh=claims.evidence_that_few_candidates_beat_pruned_others,
    )
    yield make(
        topic="A few candidates of DP-Adam beat as many of DP-SGD and DP-Momentum",
        where="Section 6, Figure 7; Figures 11 and 12",
        claim="For the same privacy, DP-Adam at its default learning rate beats as many random candidates of the "
        "others.",
        criterion=f"{subpar} of their whole grids",
        needs={ADAM: (CLIP,), **tuned},
        rows=_rows_of_all_methods_and_default_rate,
        weigh=claims.evidence_that_few_candidates_beat_others,
    )
    yield make(
        topic="DP-Adam's candidates are never catastrophic",
        where="Section 1; Section 6, Figure 7",
        claim="DP-Adam at its default learning rate is much more likely to produce non-catastrophic results.",
        criterion=f"its worst candidate is {BETTER.range_text} above always giving the most frequent answer",
        needs={ADAM: (CLIP,)},
        rows=_rows_with_best_constant,
        weigh=claims.evidence_that_no_candidate_is_catastrophic,
    )
    yield make(
        topic=f"The best of {enumeration_text(labels)} are close",
        where="Section 6, Figure 7; Figures 11 and 12",
        claim="The best candidates of DP-SGD, DP-Momentum and DP-Adam are extremely similar.",
        criterion=f"best scores differ by {CLOSE.range_text}, on grids whose points differ by more than noise",
        needs={ADAM: (CLIP,), **tuned},
        rows=lambda results: _rows_of_all_methods(results, *three),
        weigh=partial(claims.evidence_that_best_scores_are_close, methods=three),
    )
    yield make(
        topic="DP-AdamWOSM runs alongside DP-Adam",
        where="Section 7, Figure 8; Figures 13 and 14",
        claim="DP-AdamWOSM runs alongside DP-Adam throughout training, by its best and by its median candidate.",
        criterion=f"DP-Adam's best and median are {claims.NO_WORSE.range_text} above DP-AdamWOSM's at every length, "
        "among candidates that differ by more than noise; to be above is no objection",
        needs={ADAM: (CLIP, STEPS), WOSM: (CLIP, STEPS)},
        rows=_rows_of_lengths,
        weigh=claims.evidence_that_second_method_is_no_worse,
    )
    yield make(
        topic="Adam's defaults are near the best of DP-Adam's candidates",
        where="Section 5, Figure 6",
        claim="Adam's usual learning rate is close to the best whatever the decay rates, and so are all its defaults.",
        criterion=f"the best is {claims.NO_WORSE.range_text} above the defaults, and above the worst candidate at lr "
        f"{DEFAULT[LR]:g}, among candidates that differ by more than noise",
        needs={ADAM: tuple(DEFAULT)},
        rows=_final_rows,
        weigh=claims.evidence_that_adam_defaults_suffice,
    )


def _rows_of_all_methods_and_default_rate(results: SearchResults) -> pd.DataFrame:
    """The rows of three methods, those of DP-Adam at its default learning rate."""
    rows = _rows_of_all_methods(results, *TUNED, ADAM)
    kept: pd.DataFrame = rows[(rows[METHOD] != ADAM) | (rows[LR].astype(float) == DEFAULT[LR])]
    return kept


def _rows_with_best_constant(results: SearchResults) -> pd.DataFrame:
    """Those rows with the best constant predictor's accuracy, nan if it is not known or the score is no accuracy."""
    rows = _rows_of_all_methods_and_default_rate(results)
    return rows.assign(**{BEST_CONSTANT: BEST_ACCURACY.get(results.facts.account, math.nan)})


def _claims_on_momentum() -> Iterable[PaperClaim]:
    """The claims on momentum and on a clip norm that falls."""
    above = f"at every noise multiplier at which DP-SGD learned, the best score is {BETTER.range_text} above DP-SGD's"
    make = partial(PaperClaim, paper=YU, rows=rows_by_names_of_yu)
    for method, topic, where in (
        (BOTH, "Momentum and a falling clip norm beat DP-SGD", "Figures 2 and 4"),
        (AVERAGED, "Momentum of 0.6 alone beats DP-SGD", "Section 1, Figure 2"),
        (FALLING, "A falling clip norm alone beats DP-SGD", "Section 1, Figure 2"),
    ):
        for tuned, columns, rates in (
            ("at one learning rate", (), "both at the learning rate of the paper"),
            ("each at its best learning rate", (LR,), "each at the best of several learning rates"),
        ):
            yield make(
                topic=f"{topic}, {tuned}",
                where=where,
                claim=f"DP-SGD with {method} is better than DP-SGD, {rates}.",
                criterion=above,
                needs={PLAIN: columns, method: columns},
                lacks={} if columns else {PLAIN: (LR,)},
                weigh=partial(claims.evidence_that_method_beats_dpsgd, method=method),
            )
    yield make(
        topic="The gain of momentum and a falling clip norm is largest for few steps",
        where="Figure 2",
        claim="The advantage becomes larger when the budget, the number of steps, is more constrained.",
        criterion="where DP-SGD learned, with the fewest steps, which is with the least noise, the gain over DP-SGD is "
        f"{BETTER.range_text} larger than with the most",
        needs={PLAIN: (STEPS,), BOTH: (STEPS,)},
        weigh=claims.evidence_that_few_steps_gain_most,
    )
    yield PaperClaim(
        topic="Momentum does not help private training",
        paper=YANG,
        where="Section 3.2",
        claim="Momentum does not apply well to private training, since earlier directions have noise; no application "
        "of it is successful.",
        criterion=f"its best score, whatever the coefficient, is {claims.HELPS_LITTLE.range_text} above DP-SGD's, each "
        "at its best settings",
        needs={"dpsgd": (LR,), "dpmomentum": (LR,)},
        rows=_rows_at_constant_clip_norm,
        weigh=claims.evidence_that_momentum_helps_little,
    )
    make = partial(PaperClaim, paper="Yu et al. 2018", where="Figure 3", needs={"dpmomentum": (MOMENTUM,)})
    yield make(
        topic="Momentum 0.6 or 0.7 is the best in the end, 0.9 is worse",
        claim="The best accuracy in the end is that of momentum 0.6 or 0.7; 0.9 ends with a relatively bad one.",
        criterion="after the most steps, the better of 0.6 and 0.7 is above every other coefficient, and "
        f"{BETTER.range_text} above {LARGE:g}, each at its best other settings",
        rows=_final_rows,
        weigh=claims.evidence_that_moderate_momentum_is_best,
    )
    yield make(
        topic="Momentum 0.9 is the fastest in the beginning",
        claim="With momentum 0.9 the accuracy increases faster in the beginning.",
        criterion=f"after the fewest recorded steps {LARGE:g} is {BETTER.range_text} above every smaller coefficient, "
        "each at its best other settings",
        rows=_rows_of_first_step,
        weigh=claims.evidence_that_large_momentum_starts_fast,
    )


def _rows_at_constant_clip_norm(results: SearchResults) -> pd.DataFrame:
    table = results.table
    rows: pd.DataFrame = table[table[LEAST].astype(float) == 1] if LEAST in table else table
    return rows


def _claims_on_gradient_norms() -> Iterable[PaperClaim]:
    """The claims on norms of gradients in the course of training."""
    for column, label in learning.NORMS.items():
        yield PaperClaim(
            topic=f"Gradients shrink in training: {label} of their norms",
            paper=YU,
            where="Section 2, Figure 1",
            claim="The gradient tends to zero as training goes, so that the clip norm may fall.",
            criterion=f"{label} of the norms of single examples' gradients falls by {learning.HALVED.range_text} from "
            "the first to the last recorded step, by each method at one learning rate",
            needs={"dpsgd": ()},
            lacks={"dpsgd": (LR,)},
            rows=learning.runs_with_norms,
            weigh=partial(learning.evidence_that_gradient_norms_fall, column=column),
        )


CLAIMS: tuple[PaperClaim, ...] = (
    *_claims_on_normalization("dpnsgd", "dpsgd", ours=False),
    *_claims_on_curves("clipped_sgd", "normalized_sgd"),
    *_claims_on_curves("dpsgd", "dpnsgd"),
    *_claims_on_noise(),
    *_claims_on_rates(),
    *_claims_on_adam(),
    *_claims_on_momentum(),
    *_claims_on_gradient_norms(),
    *_claims_on_normalization("dpnadam", "dpadam", ours=True),
)
