"""Secret streams never repeat, reproducible ones do, and initial weights follow the identity alone."""

from __future__ import annotations

import numpy as np
import pytest
from randomgen import AESCounter

from dpsweep.trainers.randomness import Streams, public_seed_of_initial_weights, reproducible_streams, secret_streams
from tests.margins import FALSE_ALARM, count_range
from tests.randomized import SURE


def words(streams: Streams) -> list[tuple[int, ...]]:
    return [tuple(generator.integers(0, 2**63, size=4).tolist()) for generator in vars(streams).values()]


def keys(streams: Streams) -> list[tuple[int, ...]]:
    return [tuple(generator.bit_generator.state["s"]["seed"][:2].tolist()) for generator in vars(streams).values()]


@pytest.mark.randomized(
    draws="100 keys", bound="two of 100 draws of 4 x 63 bits are the same", false_alarm=100 * 99 / 2 * 2.0**-128
)
def test_secret_streams_differ_between_calls_and_uses() -> None:
    drawn = [word for _ in range(20) for word in words(secret_streams())]
    assert len(set(drawn)) == 100


@pytest.mark.randomized(
    draws="500 keys", bound="exact binomial tails of 128 bits and of their pairs", false_alarm=2 * FALSE_ALARM
)
def test_secret_keys_have_128_random_bits() -> None:
    """Each bit is 1 in half of the keys, and any two are the same in half of them."""
    sampled = np.array([key for _ in range(100) for key in keys(secret_streams())], dtype=np.uint64)
    bits = np.unpackbits(sampled.view(np.uint8), axis=None).reshape(len(sampled), 128).astype(int)
    low, high = count_range(len(bits), 0.5, 128)
    assert low <= bits.sum(axis=0).min() <= bits.sum(axis=0).max() <= high
    same = (bits.T @ bits + (1 - bits).T @ (1 - bits))[np.triu_indices(128, k=1)]
    low, high = count_range(len(bits), 0.5, len(same))
    assert low <= same.min() <= same.max() <= high
    assert 0 < low < high < len(bits), "a bit that never changes, or is another one's copy, is found"


@pytest.mark.randomized(
    draws="two draws from secret keys", bound="two keys of 128 bits are the same", false_alarm=2.0**-128
)
def test_secret_streams_ignore_and_spare_the_global_state() -> None:
    before = np.random.get_state()
    assert words(secret_streams()) != words(secret_streams())
    after = np.random.get_state()
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])


def test_reproducible_streams_repeat() -> None:
    assert words(reproducible_streams(5, "trial")) == words(reproducible_streams(5, "trial"))


@pytest.mark.parametrize("other", [(5 + 2**32, "trial"), (6, "trial"), (5, "trial2"), (-5, "trial"), (5, "")])
def test_reproducible_streams_are_unrelated_otherwise(other) -> None:
    assert not set(words(reproducible_streams(5, "trial"))) & set(words(reproducible_streams(*other)))


def test_parts_of_a_key_cannot_be_shifted_into_each_other() -> None:
    assert keys(reproducible_streams(1, "23")) != keys(reproducible_streams(12, "3"))


def test_the_five_uses_are_unrelated() -> None:
    assert len(set(words(reproducible_streams(5, "trial")))) == 5


def test_initial_seeds_are_the_identitys() -> None:
    assert public_seed_of_initial_weights("a") == public_seed_of_initial_weights("a")
    seeds = {public_seed_of_initial_weights(str(identity)) for identity in range(1000)}
    assert len(seeds) == 1000
    assert min(seeds) >= 0
    assert max(seeds) < 2**32


@pytest.mark.randomized(draws="the keys of one set of streams", bound=SURE, false_alarm=0.0)
def test_the_generator_is_aes_in_counter_mode() -> None:
    """FIPS 197, Appendix C.1: the block of this counter under this key."""
    key, counter = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    generator = AESCounter(key=int.from_bytes(key, "little"), counter=int.from_bytes(counter, "little"))
    assert generator.random_raw(2).tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    assert all(isinstance(one.bit_generator, AESCounter) for one in vars(secret_streams()).values())
