"""Drafting by copying: what followed the last time the text looked like this. Knows tokens only.

Prompt lookup (Saxena 2023; also the n-gram drafter of vLLM and llama.cpp): the longest suffix of the text that has
occurred before, the latest such place, and the tokens that followed there.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.types import Draft

_MIN_MATCH = 2  # a single token recurs by chance
_MAX_MATCH = 64  # bounds the work on text that repeats throughout


class NgramDrafter:
    """Drafts are one-hot; nothing is learnt from outcomes."""

    name = "ngram"

    def confidence(self, sequence: DecodedSequence) -> int:
        return 0

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        return [
            Draft(copy_continuation(sequence.tokens, depth)) for sequence, depth in zip(sequences, depths, strict=True)
        ]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        pass


def copy_continuation(tokens: Sequence[int], depth: int) -> tuple[int, ...]:
    """Up to `depth` tokens that followed the latest earlier place with the longest suffix; () without a match.

    A place so near the end that the text runs out goes on with the copied tokens: a period repeats.
    """
    end = longest_suffix_match(np.array(tokens, dtype=np.int64))
    if end is None:
        return ()
    copied = list(tokens[end:])
    for index in range(depth):
        copied.append(copied[index])
    return tuple(copied[:depth])


def longest_suffix_match(tokens: npt.NDArray[np.int64]) -> int | None:
    """Where the latest earlier occurrence of the longest recurring suffix of `tokens` [N] ends (exclusive).

    None when no suffix of at least two tokens recurs. Suffixes are compared up to 64 tokens.
    """
    ends = np.flatnonzero(tokens[:-1] == tokens[-1]) + 1
    latest, length = 0, 0
    while ends.size and length < _MAX_MATCH:
        latest = int(ends[-1])
        length += 1
        ends = ends[ends > length]
        ends = ends[tokens[ends - length - 1] == tokens[-length - 1]]
    return latest if length >= _MIN_MATCH else None
