"""Texts cut and packed into batches to learn from. Pure: a batch says which rows of which texts, and holds none.

Pair i of a text is the hidden state of row i with token i + 1. A chain of S steps that starts there foresees tokens
i + 2 to i + 1 + S, and learns from the hidden states of rows i + 1 to i + S.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtplx.engine.training.texts import Text

_LENGTH_STEP = 32  # pieces whose lengths are alike in these steps share a batch


@dataclass(frozen=True)
class Piece:
    """Pairs `start` to `stop` of the text with this number."""

    text: int
    start: int
    stop: int

    @property
    def num_pairs(self) -> int:
        return self.stop - self.start


def cut(texts: Sequence[Text], most_pairs: int) -> list[Piece]:
    """Pieces of at most so many pairs, of all texts, but for those pieces that have nothing to foresee."""
    pieces = []
    for index, text in enumerate(texts):
        for start in range(0, text.num_rows - 1, most_pairs):
            stop = min(start + most_pairs, text.num_rows - 1)
            if stop + 1 >= text.num_given:  # the last pair foresees token stop + 1
                pieces.append(Piece(index, start, stop))
    return pieces


def batches(pieces: Sequence[Piece], batch_pairs: int, *, seed: int, epoch: int) -> list[list[Piece]]:
    """Every piece once, in batches of at most `batch_pairs` once all are filled up to the longest, or of one piece.

    Pieces of a batch are of much the same length. Seed and epoch decide who comes together, and when.
    """
    random = np.random.default_rng([seed, epoch])
    shuffled = [pieces[index] for index in random.permutation(len(pieces))]
    found = list(_filled(sorted(shuffled, key=lambda piece: -(piece.num_pairs // _LENGTH_STEP)), batch_pairs))
    return [found[index] for index in random.permutation(len(found))]


def _filled(pieces: Sequence[Piece], batch_pairs: int) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    longest = 0
    for piece in pieces:
        longest = max(longest, piece.num_pairs)
        if batch and longest * (len(batch) + 1) > batch_pairs:
            yield batch
            batch, longest = [], piece.num_pairs
        batch.append(piece)
    if batch:
        yield batch


def wanted_pairs(piece: Piece, text: Text, num_steps: int, length: int) -> npt.NDArray[np.bool_]:
    """Which pairs [S, length] foresee, at each step of their chain, a token to be foreseen that the target tells of."""
    pairs = piece.start + np.arange(length)
    foreseen = pairs + 2 + np.arange(num_steps)[:, None]
    is_within = (pairs < piece.stop) & (foreseen <= text.num_rows)
    wanted: npt.NDArray[np.bool_] = is_within & (foreseen >= text.num_given)
    return wanted
