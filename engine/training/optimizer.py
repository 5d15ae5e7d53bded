"""What a block's weights are learnt with: Muon (Jordan et al., 2024) for matrices, AdamW for all others.

Muon makes each step of a matrix equally long in all its directions, by a few Newton-Schulz iterations; so it takes far
fewer steps than AdamW. Knows mlx's optimizers; knows no block.
"""

import mlx.core as mx
from mlx.optimizers import AdamW, MultiOptimizer, Muon

from mtplx.kernels.training import matmul

_MOMENTUM = 0.95
_BETAS = [0.9, 0.95]
_ADAM_SHARE = 0.075  # of Muon's rate
_COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the polynomial that is iterated, as published


class BlockOptimizer(MultiOptimizer):
    def __init__(self) -> None:
        matrices, others = _Muon(0.0, momentum=_MOMENTUM, weight_decay=0.0), AdamW(0.0, _BETAS, bias_correction=True)
        super().__init__([matrices, others], [lambda name, weight: weight.ndim == 2])

    def set_rate(self, rate: float) -> None:
        """Of the steps from now on."""
        matrices, others = self.optimizers
        matrices.learning_rate = rate
        others.learning_rate = _ADAM_SHARE * rate


class _Muon(Muon):
    """With products that are quick on CPUs too."""

    def _zeropower_via_newtonschulz5(self, x: mx.array, steps: int) -> mx.array:
        a, b, c = _COEFFICIENTS
        is_tall = x.shape[0] > x.shape[1]
        x = mx.contiguous(x.T) if is_tall else x
        x = x / (mx.linalg.norm(x) + 1e-7)
        for _ in range(steps):
            squares = matmul(x, x.T)
            x = a * x + matmul(b * squares + c * matmul(squares, squares), x)
        return x.T if is_tall else x
