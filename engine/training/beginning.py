"""Where a block's training begins: with the projection that comes nearest to what is wanted of it.

A block like the target's last layer takes what enters that layer. Of the row that is to be foreseen nobody has it, but
the hidden state it led to is known in training, and so is what the block's first projection, which looks at a hidden
state alone, makes of that. The linear map that comes nearest to it from a row and the next token is found by ridge
regression: training then starts from guesses, where it would need hundreds of steps to come to any. Knows blocks and
texts; trains nothing.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from mtplx.engine.models.mtp import MtpBlock
from mtplx.engine.training.pieces import Piece
from mtplx.engine.training.states import States
from mtplx.engine.training.texts import Text

_MOST_ROWS = 65_536
_RIDGE = 1e-3  # of the mean square of what is looked at


def fit_projection(
    block: MtpBlock,
    embed: Callable[[mx.array], mx.array],
    pieces: Sequence[Piece],
    texts: Sequence[Text],
    states: States,
) -> None:
    """Fit the block's projection [D, 2D] to pieces of texts, where these hold what is to be foreseen."""
    size = block.norm.weight.size
    of_hidden = np.asarray(block.projection.weight)[:, size:].astype(np.float64)
    squares, products, num_rows = np.zeros((2 * size, 2 * size)), np.zeros((2 * size, size)), 0
    for piece in pieces:
        if num_rows >= _MOST_ROWS:
            break
        text = texts[piece.text]
        start = max(piece.start, text.num_given - 1)  # its next row is the first whose token is to be foreseen
        hidden = mx.array(states.of(piece.text)[start : piece.stop + 1].astype(np.float32))
        normed = block.hidden_norm(hidden)
        following = mx.array(text.tokens[start + 1 : piece.stop + 1])
        seen = mx.concatenate([block.embedding_norm(embed(following)).astype(mx.float32), normed[:-1]], axis=1)
        given, wanted = np.asarray(seen, np.float64), np.asarray(normed[1:], np.float64) @ of_hidden.T
        squares += given.T @ given
        products += given.T @ wanted
        num_rows += len(given)
    squares += np.eye(2 * size) * (_RIDGE * np.trace(squares) / (2 * size))
    block.projection.weight = mx.array(np.linalg.solve(squares, products).T.astype(np.float32))
