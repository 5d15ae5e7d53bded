"""Which kernels decode, for people to see. Knows no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelReport:
    """Whether the native kernels are active and, if so, what for; else the reason, and whether that costs speed.

    `isa` names the instructions they were compiled for: avx512, avx2, neon or generic.
    """

    active: bool
    reason: str | None = None
    is_slow: bool = False
    isa: str | None = None
    threads: int | None = None

    def __str__(self) -> str:
        if self.active:
            return f"native, for {self.isa}, threads: {self.threads}"
        return f"MLX's own: {self.reason}"
