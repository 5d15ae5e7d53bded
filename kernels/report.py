"""Which kernels decode, for people to see. Knows no MLX."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Acceleration:
    """Layers of a model by the name of their type: how many became native, how many stay MLX's own, and the types that
    failed their check and stay for that reason."""

    native: dict[str, int]
    stock: dict[str, int]
    failed: tuple[str, ...] = ()

    def __str__(self) -> str:
        failed = f"; failed their check: {', '.join(self.failed)}" if self.failed else ""
        return f"layers made native: {_counts(self.native)}; MLX's own: {_counts(self.stock)}{failed}"


@dataclass(frozen=True)
class KernelReport:
    """Whether the native kernels are active and, if so, what for; else the reason, and whether that costs speed.

    `isa` names the instructions they were compiled for: avx512, avx2, neon or generic. `inputs` is what products with
    quantized weights take in. `layers` tells what became of
    the model's, None if nothing was tried; `decoder_layers` how its decoder layers run and, if in one call,
    `kv_cache_dtype` what they keep keys and values as, None before they do.
    """

    active: bool
    reason: str | None = None
    is_slow: bool = False
    isa: str | None = None
    threads: int | None = None
    inputs: Literal["float32", "int16", "int8"] = "float32"
    layers: Acceleration | None = None
    decoder_layers: Literal["in one native call", "one by one"] | None = None
    kv_cache_dtype: Literal["float32", "float16"] | None = None

    def with_decoder(self, row_type: Literal["float32", "float16"] | None) -> "KernelReport":
        """The report, with how the decoder layers of a model run: in one call, with rows of this type, or not."""
        return replace(
            self,
            decoder_layers="in one native call" if row_type is not None else "one by one",
            kv_cache_dtype=row_type,
        )

    def __str__(self) -> str:
        if not self.active:
            return f"MLX's own: {self.reason}"
        parts = [f"native, for {self.isa}, threads: {self.threads}"]
        if self.inputs != "float32":
            parts.append(f"products round their inputs to {self.inputs}")
        if self.layers is not None:
            parts.append(str(self.layers))
        if self.decoder_layers is not None:
            parts.append(f"decoder layers run {self.decoder_layers}")
        if self.kv_cache_dtype is not None:
            parts.append(f"keys and values are kept in {self.kv_cache_dtype}")
        return "; ".join(parts)


def _counts(layers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in layers.items()) or "none"
