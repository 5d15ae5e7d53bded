"""What native/*.cpp bind. Take it from `native_module`, which looks first whether it can be used."""

MLX_VERSION: str
ISA: str
RUNS_HERE: bool

def num_threads() -> int: ...
def set_num_threads(num_threads: int) -> None: ...
