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
        return (int(self._bits(position, purpose, round_start).random_raw()) >> 11) * 2.0**-53

    def noise(self, position: int, num_tokens: int) -> Noise:
        """Independent numbers in [0, 1), one for each of the tokens from 0 on, at `position` of the output.

        A token's number is its own: how many are asked for changes nothing.
        """
        numbers: Noise = np.random.Generator(self._bits(position, Purpose.COUPLE, 0)).random(num_tokens)
        return numbers

    def _bits(self, position: int, purpose: Purpose, round_start: int) -> np.random.Philox:
        return np.random.Philox(
            key=np.array([self.seed & _WORD, self.choice], dtype=np.uint64),
            counter=np.array([0, position, purpose, round_start], dtype=np.uint64),
        )


def fresh_seed() -> int:
    """A seed for a request that brings none."""
    return secrets.randbits(64)
