"""Operations for training a block on the CPU, where MLX's own take up to fifty times as long; each has gradients.

All take and give float32. Where there are no native kernels (Metal, CUDA, no compiler), MLX's operations serve, which
define the results. Gradients come out of `mx.grad` and its kin as for any other operation, also under `mx.checkpoint`
and `mx.compile`, and only those asked for are computed: a frozen weight costs none. Knows no layer.
"""

from collections.abc import Sequence

import mlx.core as mx

from mtplx.kernels.native_module import is_available, native

Chained = Sequence[tuple[mx.array, mx.array]]


def matmul(a: mx.array, b: mx.array) -> mx.array:
    """a [..., M, K] times b [..., K, N], with the same leading axes: [..., M, N]. Transposed views are not copied."""
    return native.matmul(a, b) if is_available() else a @ b


def dense(x: mx.array, weight: mx.array, bias: mx.array | None = None) -> mx.array:
    """x [..., K] times weight [N, K], transposed, plus bias [N]: [..., N]."""
    y = matmul(x.reshape(-1, x.shape[-1]), weight.T).reshape(*x.shape[:-1], weight.shape[0])
    return y if bias is None else y + bias


def causal_attention(q: mx.array, k: mx.array, v: mx.array, *, scale: float, chained: Chained = ()) -> mx.array:
    """q [B, H, T, size] over k and v [B, KV, T, size], where row i sees the keys of the rows 0 … i: [B, H, T, size].

    H is a multiple of KV. Of each pair of `chained`, keys and values [B, KV, T, size], row i also sees that of row i
    alone: so later steps of a draft see the steps before them, if rows are numbered by where the draft begins
    (EAGLE-3's training-time test, 2503.01840).
    """
    if not is_available():
        return reference_causal_attention(q, k, v, scale=scale, chained=chained)
    return native.causal_attention([q, k, v, *(array for pair in chained for array in pair)], scale)


def reference_causal_attention(
    q: mx.array, k: mx.array, v: mx.array, *, scale: float, chained: Chained = ()
) -> mx.array:
    if not chained:
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask="causal")
    num_rows, group = q.shape[2], q.shape[1] // k.shape[1]

    def spread(array: mx.array) -> mx.array:
        return mx.repeat(array, group, axis=1)

    scores = mx.where(mx.tri(num_rows, dtype=mx.bool_), q @ spread(k).swapaxes(-1, -2), -mx.inf)  # [B, H, T, T]
    own = [(q * spread(keys)).sum(axis=-1, keepdims=True) for keys, _ in chained]
    weights = mx.softmax(mx.concatenate([scores, *own], axis=-1) * scale, axis=-1)
    output = weights[..., :num_rows] @ spread(v)
    for i, (_, values) in enumerate(chained, start=num_rows):
        output = output + weights[..., i : i + 1] * spread(values)
    return output


def softmax(x: mx.array) -> mx.array:
    """Over the last axis of x [..., N]."""
    return native.softmax(x) if is_available() else mx.softmax(x, axis=-1)


def cross_entropy(logits: mx.array, probabilities: mx.array) -> mx.array:
    """−Σ p log softmax(logits) over the last axis of [..., N]: [...]. Its gradient is by the logits alone.

    The probabilities need not sum up to 1: those of a part of a vocabulary have the weight that they have.
    """
    probabilities = mx.stop_gradient(probabilities)
    if is_available():
        return native.cross_entropy(logits, probabilities)
    return (probabilities * (mx.logsumexp(logits, axis=-1, keepdims=True) - logits)).sum(axis=-1)
