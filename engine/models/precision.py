"""In which number formats a model's weights are held. Knows modules, not where their weights came from."""

import mlx.core as mx
import mlx.nn as nn


def float_type() -> mx.Dtype:
    """The type for weights, scales and activations that are not packed.

    MLX multiplies float32 on the CPU about 40 times faster than float16; on a GPU float16 is the faster one.
    """
    return mx.float32 if mx.default_device() == mx.Device(mx.cpu) else mx.float16


def describe_precision(model: nn.Module) -> str:
    """A few words for a person, such as "4-bit layers, 8-bit embedding and head"."""
    held: dict[str, set[str]] = {"layers": set(), "embedding": set(), "head": set()}
    for path, module in model.named_modules():
        if "weight" in module and module["weight"].ndim >= 2:
            held[_part(path)].add(_format(module))
    layers, embedding, head = (" and ".join(sorted(formats)) for formats in held.values())
    head = head or embedding  # the embedding serves as the head
    if layers == embedding == head:
        return layers
    if embedding == head:
        return f"{layers} layers, {embedding} embedding and head"
    return f"{layers} layers, {embedding} embedding, {head} head"


def _part(path: str) -> str:
    if "layers." in path:
        return "layers"
    return "head" if path.endswith("lm_head") else "embedding"


def _format(module: nn.Module) -> str:
    if hasattr(module, "bits"):
        return f"{module.bits}-bit"
    return str(module["weight"].dtype).removeprefix("mlx.core.")
