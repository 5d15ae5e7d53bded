"""Counter-based randomness: a number depends on what it is for, never on when or beside what it is drawn.

Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) as numpy has it, keyed by the
seed and the choice, counted by position and purpose. Knows uniform numbers, and no other distribution.
"""

import secrets
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Noise = npt.NDArray[np.float64]  # [n]

_WORD = (1 << 64) - 1
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)  # of Philox4x64, and what its keys are moved on by
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


class Purpose(IntEnum):
    """What a number decides. Decisions at the same position must not share a number."""

    DRAFT = 1
    ACCEPT = 2
    EMIT = 3  # the recovered, bonus or plainly decoded token
    COUPLE = 4  # which token drafter and target both choose


@dataclass(frozen=True)
class RandomKey:
    """The randomness of one choice of one request."""

    seed: int
    choice: int = 0

    def uniform(self, position: int, purpose: Purpose, round_start: int = 0) -> float:
        """A number in [0, 1) for the token at `position` of the output.

        A position may be drafted and judged again in a later round, after one that depended on its numbers; so what
        concerns drafts also counts by the position that the round starts at. All else is decided once per position.
        """
        counter = (1, position, purpose, round_start)  # numpy counts on before it draws
        return (_philox(counter, (self.seed & _WORD, self.choice)) >> 11) * 2.0**-53

    def noise(self, position: int, num_tokens: int) -> Noise:
        """Independent numbers in [0, 1), one for each of the tokens from 0 on, at `position` of the output.

        A token's number is its own: how many are asked for changes nothing.
        """
        bits = np.random.Philox(
            key=np.array([self.seed & _WORD, self.choice], dtype=np.uint64),
            counter=np.array([0, position, Purpose.COUPLE, 0], dtype=np.uint64),
        )
        numbers: Noise = np.random.Generator(bits).random(num_tokens)
        return numbers


def _philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> int:
    """The first of the four words that Philox4x64-10 makes of a counter: much sooner than numpy sets up a generator."""
    a, b, c, d = counter
    first_key, second_key = key
    for _ in range(10):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (right >> 64) ^ b ^ first_key, right & _WORD, (left >> 64) ^ d ^ second_key, left & _WORD
        first_key, second_key = (first_key + _STEPS[0]) & _WORD, (second_key + _STEPS[1]) & _WORD
    return a


def fresh_seed() -> int:
    """A seed for a request that brings none."""
    return secrets.randbits(64)
