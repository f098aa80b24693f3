"""The claim of a release as one frozen value: every document that is handed on with a release is written from it.

Invariants: prices come from the ledger, texts from the lines of the public statement, and a score is there only if the
rule discloses it. So a document cannot say more than the release does. The one number that a release's page does not
show is what the account has reserved in all: charges are fixed before anything runs, so they say nothing of a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import file_digest
from pathlib import Path
from typing import ClassVar

from dpsweep.accounting.guarantee import Adjacency
from dpsweep.accounting.ledger.statement import charge_facts, policy_name
from dpsweep.accounting.notation import delta_text_rounded_up, epsilon_text_rounded_up, text_with_all_digits
from dpsweep.accounting.records.trial_result import OUTPUTS
from dpsweep.accounting.selection.interface import Disclosure
from dpsweep.accounting.stored_names.stored_classes import tag_or_path_of_class
from dpsweep.reports.content.audience import most_disclosed
from dpsweep.reports.content.facts import Bill, gaussian_mu_or_not_proven
from dpsweep.reports.content.score_scale import UNDER_NOISE
from dpsweep.reports.content.sweep_table import Sweep
from dpsweep.reports.content.told_score import told_score_of_run
from dpsweep.reports.statement.statement import cautions_on_large_epsilon_or_delta, protects_nobody_sentence
from dpsweep.reports.statement.statement_line import Line

DISCLOSES: Mapping[Disclosure | None, str] = {
    Disclosure.ALL_SCORES: "the scores of all runs may be shown",
    Disclosure.WINNER_SCORE: "only the winner and its score may be shown",
    Disclosure.WINNER: "only the winner, without its score, may be shown",
}
"""What a rule lets out, by the most that it discloses."""

TASKS: Mapping[str, str] = {
    "next_token": "text-generation",
    **dict.fromkeys(("absolute_error", "huber", "squared_error"), "regression"),
}
"""The task of a model by the tag of its loss; with any other loss it classifies."""


@dataclass(frozen=True, kw_only=True)
class ReleasedScore:
    """The winner's score at a task, and the 95 % interval that covers the choice; None where nothing covers it.

    `value` is a text for an error that noise drove below 0. `basis` says what the score is the best of, or which units
    it is of.
    """

    task: str
    metric: str
    name: str
    value: float | str
    low: float | None
    high: float | None
    basis: str = ""

    @property
    def name_with_basis(self) -> str:
        """The name of the score, and what it is the best of, or which units it is of."""
        return f"{self.name}, {self.basis}" if self.basis else self.name


@dataclass(frozen=True, kw_only=True)
class ReleasedModel:
    """The winner's model in a release: the name of its file, and its SHA-256."""

    file: str
    sha256: str

    @classmethod
    def from_release_folder(cls, release: Path) -> ReleasedModel | None:
        """The model that lies in a release; None if it has none."""
        for path in (release / name for name in OUTPUTS):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as stream:
                    return cls(file=path.name, sha256=file_digest(stream, "sha256").hexdigest())
        return None


@dataclass(frozen=True, kw_only=True)
class ReleasedClaim:
    """What a release claims.

    `outcome` says that a search has no winner, and is empty if it has one or if the rule does not say. `nobody` says
    that the data were declared public: then there is no claim, and epsilon is infinite. `epsilon` and `delta` are upper
    bounds for the whole search, `reserved` those for all charges on the account so far, `budget` what the account may
    reserve at most. `gaussian_mu` is the mu that holds at every delta, or the words "not proven". `points` is the
    number of points that the plan declares. `upper_bounds` are those of every accountant that bounds all charges.
    `exact_scores` says that scores are without noise, on records declared public.
    """

    account: str
    headline: str
    outcome: str
    nobody: str
    epsilon: float
    delta: float
    gaussian_mu: float | str
    unit: str
    adjacency: Adjacency
    points: int
    rule: str
    discloses: str
    reserved: tuple[float, float]
    budget: tuple[float, float]
    policy: str
    upper_bounds: Mapping[str, float]
    claimed_by: tuple[str, ...]
    lines: tuple[Line, ...]
    cautions: tuple[str, ...]
    report: str
    model: ReleasedModel | None
    score: ReleasedScore | None
    exact_scores: bool
    day: date
    scope: ClassVar[str] = "the whole search, with the choice of the best configuration"

    @property
    def guarantee_fields(self) -> dict[str, float | str]:
        """The guarantee in machine-readable form: its parameters, and the unit and neighbours that it holds for."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "gaussian_mu": self.gaussian_mu,
            "unit": self.unit,
            "adjacency": self.adjacency.value,
        }

    @property
    def gaussian_mu_text(self) -> str:
        """The mu rounded up, or that none is proven."""
        mu = self.gaussian_mu
        return mu if isinstance(mu, str) else epsilon_text_rounded_up(mu)

    @property
    def search_claim_and_outcome_text(self) -> str:
        """The search, its claim and its outcome in a few sentences."""
        return " ".join(filter(None, (f"{self.headline}.", self.line_text_on_topic("Claim"), self.outcome)))

    @property
    def account_reserved_and_budget_sentence(self) -> str:
        """What the account has reserved in all at this moment, of how much; empty for data declared public."""
        if self.nobody:
            return ""
        return (
            f"All charges on the account {self.account} together, this search included, have reserved epsilon "
            f"{epsilon_text_rounded_up(self.reserved[0])} at delta {delta_text_rounded_up(self.reserved[1])} so far; "
            "its budget is epsilon "
            f"{text_with_all_digits(self.budget[0])} at delta {text_with_all_digits(self.budget[1])}."
        )

    def line_text_on_topic(self, topic: str) -> str:
        """The text of the statement's line on a topic; empty if it has none."""
        return " ".join(line.text for line in self.lines if line.topic == topic)

    def evidence_texts_on_topic(self, topic: str) -> tuple[str, ...]:
        """The evidence of the statement's line on a topic."""
        return tuple(text for line in self.lines if line.topic == topic for text in line.evidence)

    @property
    def not_covered_sentences(self) -> tuple[str, ...]:
        """What the claim does not cover, sentence by sentence."""
        limits = self.evidence_texts_on_topic("Not covered") or (self.line_text_on_topic("Not covered"),)
        return tuple(text for text in (*limits, self.line_text_on_topic("Floating point")) if text)


def released_claim_of_sweep(
    sweep: Sweep,
    bill: Bill,
    *,
    headline: str,
    lines: Sequence[Line],
    report: str,
    model: ReleasedModel | None,
    day: date,
) -> ReleasedClaim:
    """The claim of a sweep's release, from its charges and from the lines of its public statement."""
    return ReleasedClaim(
        account=sweep.plan.account,
        headline=headline,
        outcome=sweep.shown.outcome,
        nobody=protects_nobody_sentence(sweep.plan),
        epsilon=bill.epsilon,
        delta=bill.delta,
        gaussian_mu=gaussian_mu_or_not_proven(sweep, bill),
        unit=sweep.plan.unit,
        adjacency=sweep.plan.adjacency,
        points=len(sweep.plan.trials),
        rule=sweep.rule.name,
        discloses=DISCLOSES[most_disclosed(sweep.rule.discloses)],
        reserved=bill.reserved,
        budget=bill.budget,
        policy=policy_name(sweep.account.balance.policy),
        upper_bounds=bill.upper_bounds,
        claimed_by=tuple(dict.fromkeys(charge_facts(charge).claimed_by for charge in bill.charges)),
        lines=tuple(lines),
        cautions=cautions_on_large_epsilon_or_delta(sweep.plan, bill),
        report=report,
        model=model,
        score=_disclosed_winner_score(sweep),
        exact_scores=not sweep.has_private_scores,
        day=day,
    )


def _disclosed_winner_score(sweep: Sweep) -> ReleasedScore | None:
    """The winner's score, if there is one and the rule discloses it."""
    if sweep.winner_id is None or Disclosure.WINNER_SCORE not in sweep.disclosures:
        return None
    told = told_score_of_run(sweep, sweep.winner_id)
    if told is None:
        return None
    value, low, high = told.numbers
    return ReleasedScore(
        task=TASKS.get(
            tag_or_path_of_class(sweep.trial_with_id(sweep.winner_id).config.get("loss", {})), "classification"
        ),
        metric=sweep.exported_metric,
        name=sweep.score_scale.heading(sweep.score_description).removesuffix(", %"),
        value=UNDER_NOISE if value is None else value,
        low=low,
        high=high,
        basis=told.basis_text,
    )
