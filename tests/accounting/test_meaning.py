"""What epsilon and delta mean, in numbers that an independent reckoning does not exceed; large deltas are refused."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsweep.accounting.cautions import (
    caution_sentences,
    delta_acceptance_sentence,
    is_large_delta,
    is_noticeable_delta,
    noticeable_delta_sentence,
    require_small_or_accepted_delta,
)
from dpsweep.accounting.errors import BadInput
from dpsweep.accounting.events.build import DpEvent, PlanEvent, best_of_tries, poisson_gaussian, repeat
from dpsweep.accounting.events.trial_counts import EachPoint, NegativeBinomial
from dpsweep.accounting.guarantee import Adjacency, Guarantee
from dpsweep.accounting.meaning import HOPELESS_EPSILON, Meaning
from dpsweep.accounting.notation import percent_text_rounded_up
from dpsweep.accounting.pricing.price import DEFAULT_PANEL
from tests.accounting.reference_losses import Removed

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


@pytest.mark.parametrize(("delta", "large"), [(0.05, True), (0.001, True), (0.000999, False), (1e-5, False)])
def test_a_delta_of_one_over_the_units_is_large(delta: float, large: bool) -> None:
    assert is_large_delta(delta, 1000) is large
    if not large:
        require_small_or_accepted_delta(delta, 1000, "record", None)
        return
    with pytest.raises(BadInput, match=r"^Expected privacy\.delta=0\.\d+ to be below 1 / 1000") as refusal:
        require_small_or_accepted_delta(delta, 1000, "patient", None)
    assert f"privacy.accept_delta={delta}" in str(refusal.value)
    assert "declared number of patients" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@given(units=st.integers(min_value=1, max_value=10**9))
def test_the_border_itself_is_refused_also_where_floats_round(units: int) -> None:
    assert is_large_delta(math.nextafter(1 / units, 1), units)
    assert is_noticeable_delta(1 / units, units)
    assert not is_noticeable_delta(0.0999 / units, units)


@pytest.mark.parametrize("accepted", [True, 0.04, 1, "yes", "0.05", math.nan])
def test_only_the_number_itself_accepts(accepted: object) -> None:
    with pytest.raises(BadInput, match=r"to be privacy\.delta once more, privacy\.accept_delta=0\.05, or null"):
        require_small_or_accepted_delta(0.05, 1000, "record", accepted)


def test_the_number_typed_again_is_accepted_and_not_needed_where_delta_is_small() -> None:
    require_small_or_accepted_delta(0.05, 1000, "record", 0.05)
    require_small_or_accepted_delta(1e-5, 1000, "record", 0.05)


def test_what_a_delta_allows_is_counted_out() -> None:
    assert "in full with probability 0.05, on average 50 records, has this delta too" in noticeable_delta_sentence(
        0.05, 1000, "record"
    )
    assert noticeable_delta_sentence(0.0005, 1000, "record").startswith(
        "Delta 0.0005 is not small for the declared 1000 records"
    )
    assert noticeable_delta_sentence(0.0001, 1000, "record") == ""


def meaning(
    epsilon: float, delta: float = 1e-5, adjacency: Adjacency = ADD, total_variation: float | None = None
) -> Meaning:
    pair = Guarantee(epsilon=epsilon, delta=delta, adjacency=adjacency, unit="patient")
    return Meaning(guarantee=pair, total_variation=total_variation)


def priced(event: DpEvent, adjacency: Adjacency = ADD, delta: float = 1e-5) -> Meaning:
    plan = PlanEvent(training=event)
    epsilon = DEFAULT_PANEL.quote(plan, delta, adjacency).epsilon
    return meaning(epsilon, delta, adjacency, DEFAULT_PANEL.total_variation(plan, adjacency))


def number_before(words: str, sentence: str) -> float:
    """The number that stands before these words of a sentence."""
    (number,) = re.findall(rf"([\d.,e-]+){re.escape(words)}", sentence)
    return float(number.replace(",", ""))


def normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def losses_of_sampled_steps(rate: float, noise: float, steps: int, runs: int) -> np.ndarray:
    """ln(Q / P) of each of `runs` outputs of Q, where no record was added to Poisson-sampled Gaussian steps."""
    rng = np.random.default_rng(7)
    total = np.zeros(runs)
    for _ in range(steps):
        x = noise * rng.standard_normal(runs)
        total -= np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))
    return total


def chance_of_loss_above(rate: float, noise: float, steps: int, least: float) -> float:
    """P(ln(P / Q) > least) for so many sampled steps, by a transform of losses rounded to the nearest thousandth."""
    masses, _, losses = Removed(rate, noise).both(-1000, 12000, 1e-3)
    points, real = 2**17, masses > 0
    one = np.bincount(np.rint(losses[real] / 1e-3).astype(int) % points, masses[real], minlength=points)
    composed = np.fft.ifft(np.fft.fft(one) ** steps).real
    return float(composed[math.ceil(least / 1e-3) : points // 2].sum())


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("noise", [0.3, 1.0, 2.5, 30.0])
def test_the_coin_of_a_gaussian_is_the_best_guess_by_its_total_variation(noise: float, adjacency: Adjacency) -> None:
    sensitivity = 2 if adjacency is REPLACE else 1
    best = normal(sensitivity / noise / 2)
    sentence = priced(poisson_gaussian(sample_rate=1.0, noise_multiplier=noise), adjacency).coin_sentence
    said = number_before(" % of the time", sentence) / 100
    assert best <= said <= best + 1.001e-3
    assert ("whether one patient is used" in sentence) == (adjacency is ADD)


def test_the_coin_of_a_composition_is_that_of_simulated_outputs() -> None:
    """The likelihood test is the best guess; its standard deviation over so many outputs is below .003."""
    rate, noise, steps = 0.078, 2.248, 360
    losses = losses_of_sampled_steps(rate, noise, steps, 40_000)
    best = (1 + np.maximum(0.0, -np.expm1(-losses)).mean()) / 2
    run = repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps)
    assert priced(run).largest_share_of_right_guesses == pytest.approx(best, abs=0.012)


@pytest.mark.parametrize("law", [NegativeBinomial.with_mean(eta=1, mean=5), EachPoint(count=6)])
def test_the_coin_of_a_search_is_no_rarer_than_that_of_the_best_score(law: NegativeBinomial | EachPoint) -> None:
    """Of tries that show their largest noisy value, the winner above a cut is such a guess."""
    noise = 2.0
    cuts = np.linspace(-8, 16, 4001)
    tail = np.array([normal(-cut / noise) for cut in cuts]), np.array([normal((1 - cut) / noise) for cut in cuts])

    def below(chance: np.ndarray) -> np.ndarray:
        """The probability that all tries are below a cut, given that of one try."""
        return chance**law.count if isinstance(law, EachPoint) else chance / (law.mean - (law.mean - 1) * chance)

    without, with_record = (below(1 - one) for one in tail)
    best = (1 + float(np.max(without - with_record))) / 2
    search = priced(best_of_tries(poisson_gaussian(sample_rate=1.0, noise_multiplier=noise), law))
    by_pair = meaning(search.guarantee.epsilon).largest_share_of_right_guesses
    assert best <= search.largest_share_of_right_guesses < by_pair


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0, 15.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_no_pair_within_epsilon_and_delta_makes_a_sentence_false(epsilon: float, delta: float) -> None:
    """Two extreme pairs: response that reveals all with probability delta, and atoms as likely as delta allows."""
    e, said = math.exp(epsilon), meaning(epsilon, delta)
    response = np.array([delta, (1 - delta) * e / (1 + e), (1 - delta) / (1 + e), 0.0])
    factor = number_before(" with a probability", said.odds_sentence)
    exceptional = float(said.odds_sentence.rpartition(" ")[2].rstrip("."))
    beyond = factor * (1 + 1e-6)
    most = delta / (1 - e / beyond)
    atoms = np.array([most, most / beyond, 1 - most - most / beyond])
    for p, q in ((response, response[::-1]), (atoms, atoms[[1, 0, 2]])):
        assert float(np.maximum(0, p - e * q).sum()) <= delta + 1e-14
        assert float(np.maximum(0, q - e * p).sum()) <= delta + 1e-14
        share = (1 + float(np.maximum(0, p - q).sum())) / 2
        assert share <= number_before(" % of the time", said.coin_sentence) / 100
        for seen in (p, q):
            moved = seen[(p > factor * q) | (q > factor * p)].sum()
            assert moved <= exceptional
            assert p is response or moved > 0.95 * exceptional, "no smaller number would do"
    assert said.largest_share_of_right_guesses == pytest.approx((e + delta) / (e + 1))
    assert response[2:].sum() <= 1 / (e + 1), "an attack that the pair allows errs so rarely, in both directions"


def test_odds_move_further_than_epsilon_more_often_than_delta() -> None:
    """The sentence that stood on every page until it was computed; the one that replaced it holds for the same run."""
    rate, noise, steps = 0.078, 2.248, 360
    said = priced(repeat(poisson_gaussian(sample_rate=rate, noise_multiplier=noise), steps))
    exceeded, rarer = (
        chance_of_loss_above(rate, noise, steps, at)
        for at in (said.guarantee.epsilon, said.guarantee.epsilon + math.log(2))
    )
    assert exceeded > 4 * said.guarantee.delta
    assert rarer < said.chance_of_larger_odds


@pytest.mark.parametrize(
    ("epsilon", "factor"), [(8.0, "2,990"), (8.00301, "3,000"), (10.5, "36,400"), (12.0, "163,000")]
)
def test_every_sentence_has_the_same_factor_of_the_epsilon_at_hand(epsilon: float, factor: str) -> None:
    said = meaning(epsilon)
    assert said.chance_sentence.count(factor) == 2
    assert factor in meaning(epsilon, adjacency=REPLACE).chance_sentence
    assert (factor in said.harm_sentence) == (epsilon > 10)
    assert math.exp(epsilon) <= number_before(" times", said.chance_sentence.partition(";")[0])


def test_harm_is_said_above_ten_and_nothing_is_promised_far_above() -> None:
    assert meaning(10.0).harm_sentence == meaning(math.inf).harm_sentence == ""
    assert "finds all but one in e^epsilon + 1" in meaning(10.5).harm_sentence
    assert "tells two values of a patient apart" in meaning(10.5, adjacency=REPLACE).harm_sentence
    far = meaning(2 * HOPELESS_EPSILON)
    assert far.harm_sentence.endswith("at this epsilon the bound promises nothing in practice.")
    assert (far.chance_sentence, far.odds_sentence) == ("", "")
    assert "100 %" in far.coin_sentence


def test_replacing_a_record_has_words_of_its_own() -> None:
    said = meaning(1.0, adjacency=REPLACE)
    assert "if this patient had been any other" in said.chance_sentence
    assert "not been used" not in " ".join(said.sentences) + said.odds_sentence


@given(share=st.floats(min_value=0, max_value=1))
def test_a_percentage_is_never_written_smaller_than_it_is(share: float) -> None:
    written = Decimal(percent_text_rounded_up(share))
    assert Decimal(share) * 100 - Decimal("1e-12") <= written <= 100
    assert written - Decimal(share) * 100 <= Decimal("0.1") + Decimal("1e-12")


def test_who_accepted_is_said_or_that_nobody_did() -> None:
    assert delta_acceptance_sentence(0.05, 1000, 0.05).endswith("by typing privacy.accept_delta=0.05.")
    assert delta_acceptance_sentence(0.05, 1000, None).startswith("Nobody accepted")
    assert delta_acceptance_sentence(0.0005, 1000, None) == ""


def test_a_claim_of_usual_size_needs_no_words() -> None:
    assert caution_sentences(meaning(8.0), 5000, None) == ()
    assert len(caution_sentences(meaning(11.0, 0.05), 5000, 0.05)) == 2
    assert len(caution_sentences(meaning(11.0, 0.05), None, 0.05)) == 1
