"""Counter-based randomness: a number depends on what it is for, never on when or beside what it is drawn.

Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) as numpy has it, keyed by the
seed and the choice, counted by position and purpose. Knows no distribution.
"""

import secrets
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

_WORD = (1 << 64) - 1


class Purpose(IntEnum):
    """What a number decides. Decisions at the same position must not share a number."""

    DRAFT = 1
    ACCEPT = 2
    EMIT = 3  # the recovered, bonus or plainly decoded token


@dataclass(frozen=True)
class RandomKey:
    """The randomness of one choice of one request."""

    seed: int
    choice: int = 0

    def uniform(self, position: int, purpose: Purpose, round_start: int = 0) -> float:
        """A number in [0, 1) for the token at `position` of the output.

        A position may be drafted again in a later round, whose depth may depend on what the first draft was; so
        drafts also count by the position their round starts at. All else is decided once per position.
        """
        bits = np.random.Philox(
            key=np.array([self.seed & _WORD, self.choice], dtype=np.uint64),
            counter=np.array([0, position, purpose, round_start], dtype=np.uint64),
        )
        return (int(bits.random_raw()) >> 11) * 2.0**-53


def fresh_seed() -> int:
    """A seed for a request that brings none."""
    return secrets.randbits(64)
