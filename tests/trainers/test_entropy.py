"""Secret streams never repeat, reproducible ones do, and initial weights follow the identity alone."""

from __future__ import annotations

import numpy as np
import pytest
from randomgen import AESCounter

from trainers.entropy import Streams, initial_seed, reproducible_streams, secret_streams


def words(streams: Streams) -> list[tuple[int, ...]]:
    return [
        tuple(generator.integers(0, 2**63, size=4).tolist())
        for generator in (streams.subsampling, streams.noise, streams.score)
    ]


def keys(streams: Streams) -> list[tuple[int, ...]]:
    return [
        tuple(generator.bit_generator.state["s"]["seed"][:2].tolist())
        for generator in (streams.subsampling, streams.noise, streams.score)
    ]


def test_secret_streams_differ_between_calls_and_uses() -> None:
    drawn = [word for _ in range(20) for word in words(secret_streams())]
    assert len(set(drawn)) == 60


def test_secret_keys_have_128_random_bits() -> None:
    sampled = np.array([key for _ in range(100) for key in keys(secret_streams())], dtype=np.uint64)
    ones = np.unpackbits(sampled.view(np.uint8), axis=None).reshape(len(sampled), 128).mean(axis=0)
    assert ones.min() > 0.3
    assert ones.max() < 0.7


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


def test_the_three_uses_are_unrelated() -> None:
    subsampling, noise, score = words(reproducible_streams(5, "trial"))
    assert len({subsampling, noise, score}) == 3


def test_initial_seeds_are_the_identitys() -> None:
    assert initial_seed("a") == initial_seed("a")
    seeds = {initial_seed(str(identity)) for identity in range(1000)}
    assert len(seeds) == 1000
    assert min(seeds) >= 0
    assert max(seeds) < 2**32


def test_the_generator_is_aes_in_counter_mode() -> None:
    """FIPS 197, Appendix C.1: the block of this counter under this key."""
    key, counter = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    generator = AESCounter(key=int.from_bytes(key, "little"), counter=int.from_bytes(counter, "little"))
    assert generator.random_raw(2).tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    assert all(isinstance(one.bit_generator, AESCounter) for one in vars(secret_streams()).values())
