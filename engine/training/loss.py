"""How far a block's guesses are from the target's distributions, and in which direction it is to change them.

Logits are wide: they are looked at a few rows at a time, and their gradient is taken back to the hidden states at once.
Knows hidden states and the frozen output head; knows no block.
"""

import mlx.core as mx

from mtplx.kernels.training import cross_entropy, dense, softmax

_CHUNK_ROWS = 512  # more take memory and save no time


def probabilities(hidden: mx.array, weight: mx.array) -> mx.array:
    """[R, N] over the tokens whose rows of the output head are `weight` [N, D], from hidden states [R, D]."""
    starts = range(0, hidden.shape[0], _CHUNK_ROWS)
    return mx.concatenate([softmax(dense(hidden[start : start + _CHUNK_ROWS], weight)) for start in starts])


def soft_cross_entropy(
    hidden: mx.array, weight: mx.array, target: mx.array, truth: mx.array
) -> tuple[mx.array, mx.array]:
    """The sum over rows of −Σ p log q, and a number with the same gradient: q from hidden states [R, D], p the rows
    `truth` [R] of `target` [U, N].

    The gradient, (q − p) times `weight` [N, D], goes to `hidden` and to nothing else. The number itself says nothing.
    """

    def chunk_loss(rows: mx.array, expected: mx.array) -> mx.array:
        return mx.sum(cross_entropy(dense(rows, weight), expected))

    losses, gradients = [], []
    for start in range(0, hidden.shape[0], _CHUNK_ROWS):
        chunk = slice(start, start + _CHUNK_ROWS)
        loss, gradient = mx.value_and_grad(chunk_loss)(mx.stop_gradient(hidden[chunk]), target[truth[chunk]])
        losses.append(loss)
        gradients.append(gradient)
    slope = mx.sum(hidden * mx.stop_gradient(mx.concatenate(gradients)))
    return mx.stop_gradient(mx.sum(mx.stack(losses))), slope
