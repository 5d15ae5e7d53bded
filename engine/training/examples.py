"""A batch of pieces as arrays. Knows how texts and their states are laid out, and no block."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mtplx.engine.training.pieces import Piece, wanted_pairs
from mtplx.engine.training.states import States
from mtplx.engine.training.texts import Text


@dataclass(frozen=True)
class Examples:
    """B pieces of up to T pairs, each the start of a chain of S steps.

    `hidden` [B, T, D] is what the first step sees of the target; `tokens` [S, B, T] is the token beside it at each
    step. `wanted[s]` [R] names pairs, of B·T, whose step s is judged, `truth[s]` [R] for each of them the row of
    `target_hidden` [U, D] that it should have foreseen.
    """

    hidden: mx.array
    tokens: mx.array
    wanted: tuple[mx.array, ...]
    truth: tuple[mx.array, ...]
    target_hidden: mx.array

    @property
    def num_wanted(self) -> tuple[int, ...]:
        return tuple(rows.size for rows in self.wanted)


def examples(pieces: Sequence[Piece], texts: Sequence[Text], states: States, num_steps: int) -> Examples:
    """Of at least one piece that has something to foresee."""
    length = max(piece.num_pairs for piece in pieces)
    first = states.of(pieces[0].text)
    hidden = np.zeros((len(pieces), length + num_steps, first.shape[1]), dtype=np.float32)
    tokens = np.zeros((len(pieces), length + num_steps), dtype=np.int32)
    wanted = np.zeros((num_steps, len(pieces), length), dtype=np.bool_)
    for index, piece in enumerate(pieces):
        text = texts[piece.text]
        rows = slice(piece.start, min(piece.stop + num_steps, text.num_rows))
        known = states.of(piece.text)[rows]
        hidden[index, : len(known)] = known
        following = text.tokens[piece.start + 1 : piece.stop + num_steps]
        tokens[index, : len(following)] = following
        wanted[:, index] = wanted_pairs(piece, text, num_steps, length)
    # Step s of the chain from pair t should come to what the target has in row t + 1 + s.
    following_rows = np.arange(len(pieces))[:, None] * (length + num_steps) + 1 + np.arange(length)
    foreseen = [(following_rows + step)[wanted[step]] for step in range(num_steps)]
    needed, truth = np.unique(np.concatenate(foreseen), return_inverse=True)
    ends = np.cumsum([len(part) for part in foreseen])[:-1]
    return Examples(
        mx.array(hidden[:, :length]),
        mx.array(np.stack([tokens[:, step : step + length] for step in range(num_steps)])),
        tuple(mx.array(np.flatnonzero(wanted[step])) for step in range(num_steps)),
        tuple(mx.array(part) for part in np.split(truth, ends)),
        mx.array(hidden.reshape(-1, hidden.shape[-1])[needed]),
    )
