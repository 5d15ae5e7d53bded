"""Which kernels decode, for people to see. Knows no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Acceleration:
    """Layers of a model by the name of their type: how many became native, how many stay MLX's own, and the types that
    failed their check and stay for that reason."""

    native: dict[str, int]
    stock: dict[str, int]
    failed: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelReport:
    """Whether the native kernels are active and, if so, what for; else the reason, and whether that costs speed.

    `isa` names the instructions they were compiled for: avx512, avx2, neon or generic. `layers` tells what became of
    the model's.
    """

    active: bool
    reason: str | None = None
    is_slow: bool = False
    isa: str | None = None
    threads: int | None = None
    layers: Acceleration | None = None

    def __str__(self) -> str:
        if self.active:
            return f"native, for {self.isa}, threads: {self.threads}"
        return f"MLX's own: {self.reason}"
