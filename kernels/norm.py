"""RMSNorm and LayerNorm over the last axis, with the residual added first where asked.

The functions without a prefix are native where that is possible, and else the references, which define them: MLX's own.
Natively a row's bits depend on that row alone, and arithmetic is float32 whatever the arrays are. Knows no layer.
"""

import mlx.core as mx

from mtplx.kernels.native_module import is_available, native


def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    """x [..., N] / √(mean(x²) + eps) · weight [N]: [..., N]."""
    if not is_available():
        return reference_rms_norm(x, weight, eps)
    return native.rms_norm(_float32(x), _optional_float32(weight), eps).astype(_common_type(x, weight))


def reference_rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array:
    return mx.fast.rms_norm(x, weight, eps)


def layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    """(x - mean(x)) / √(variance(x) + eps) · weight [N] + bias [N]: [..., N]."""
    if not is_available():
        return reference_layer_norm(x, weight, bias, eps)
    y = native.layer_norm(_float32(x), _optional_float32(weight), _optional_float32(bias), eps)
    return y.astype(_common_type(x, weight, bias))


def reference_layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array:
    return mx.fast.layer_norm(x, weight, bias, eps)


def add_rms_norm(x: mx.array, residual: mx.array, weight: mx.array | None, eps: float) -> tuple[mx.array, mx.array]:
    """`rms_norm(x + residual)` and x + residual, in one pass."""
    if not is_available():
        return reference_add_rms_norm(x, residual, weight, eps)
    y, total = native.add_rms_norm(_float32(x), _float32(residual), _optional_float32(weight), eps)
    return y.astype(_common_type(x, residual, weight)), total.astype(_common_type(x, residual))


def reference_add_rms_norm(
    x: mx.array, residual: mx.array, weight: mx.array | None, eps: float
) -> tuple[mx.array, mx.array]:
    total = x + residual
    return reference_rms_norm(total, weight, eps), total


def add_layer_norm(
    x: mx.array, residual: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float
) -> tuple[mx.array, mx.array]:
    """`layer_norm(x + residual)` and x + residual, in one pass."""
    if not is_available():
        return reference_add_layer_norm(x, residual, weight, bias, eps)
    y, total = native.add_layer_norm(
        _float32(x), _float32(residual), _optional_float32(weight), _optional_float32(bias), eps
    )
    return y.astype(_common_type(x, residual, weight, bias)), total.astype(_common_type(x, residual))


def reference_add_layer_norm(
    x: mx.array, residual: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float
) -> tuple[mx.array, mx.array]:
    total = x + residual
    return reference_layer_norm(total, weight, bias, eps), total


def _float32(x: mx.array) -> mx.array:
    return x.astype(mx.float32)


def _optional_float32(x: mx.array | None) -> mx.array | None:
    return None if x is None else x.astype(mx.float32)


def _common_type(*arrays: mx.array | None) -> mx.Dtype:
    return mx.result_type(*(array for array in arrays if array is not None))
