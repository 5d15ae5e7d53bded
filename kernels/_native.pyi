"""What native/*.cpp bind. Take it from `native_module`, which looks first whether it can be used."""

import mlx.core as mx
import numpy as np
import numpy.typing as npt

MLX_VERSION: str
ISA: str
RUNS_HERE: bool
FLOAT_BYTES: int
IS_QUICK_AT_INT16: bool

def num_threads() -> int: ...
def set_num_threads(num_threads: int) -> None: ...
def input_bytes() -> int: ...
def set_input_bytes(num_bytes: int) -> None: ...

# norm.cpp
def rms_norm(x: mx.array, weight: mx.array | None, eps: float) -> mx.array: ...
def layer_norm(x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float) -> mx.array: ...
def add_rms_norm(x: mx.array, residual: mx.array, weight: mx.array | None, eps: float) -> tuple[mx.array, mx.array]: ...
def add_layer_norm(
    x: mx.array, residual: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float
) -> tuple[mx.array, mx.array]: ...

# rope.cpp
def rope(
    x: mx.array, offsets: mx.array, inverse_frequencies: mx.array, *, traditional: bool, scale: float
) -> mx.array: ...

# activation.cpp
def activate(name: str, x: mx.array, up: mx.array | None = None) -> mx.array: ...

# attention.cpp
def ragged_attention(
    queries: mx.array,
    keys: list[mx.array],
    values: list[mx.array],
    segments: list[tuple[int, int, int, int]],
    new_keys: mx.array | None = None,
    new_values: mx.array | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: mx.array | None = None,
) -> list[mx.array]: ...

# causal_attention.cpp
def causal_attention(arrays: list[mx.array], scale: float) -> mx.array: ...

# matmul.cpp
def matmul(a: mx.array, b: mx.array) -> mx.array: ...

# softmax.cpp
def softmax(x: mx.array) -> mx.array: ...
def cross_entropy(logits: mx.array, probabilities: mx.array) -> mx.array: ...

# sampling.cpp
def greedy(logits: npt.NDArray[np.float32]) -> tuple[int, bool]: ...
def whole_distribution(logits: npt.NDArray[np.float32], temperature: float) -> npt.NDArray[np.float64]: ...
def cut_distribution(
    logits: npt.NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...
def probability_of(tokens: npt.NDArray[np.int32], probabilities: npt.NDArray[np.float64], token: int) -> float: ...
def draw(tokens: npt.NDArray[np.int32], probabilities: npt.NDArray[np.float64], uniform: float) -> int: ...
def residual(
    p_tokens: npt.NDArray[np.int32],
    p: npt.NDArray[np.float64],
    q_tokens: npt.NDArray[np.int32],
    q: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...

# linear.cpp
def quantized_linear(
    x: mx.array,
    words: mx.array,
    scales: mx.array,
    biases: mx.array,
    *,
    bits: int,
    group_size: int,
    num_outputs: int,
) -> mx.array: ...

# dense.cpp
def dense_linear(x: mx.array, values: mx.array, *, num_outputs: int) -> mx.array: ...

# gather.cpp
def gathered_quantized_linear(
    x: mx.array,
    indices: mx.array,
    words: mx.array,
    scales: mx.array,
    biases: mx.array,
    *,
    bits: int,
    group_size: int,
    num_outputs: int,
) -> mx.array: ...
def gathered_dense_linear(x: mx.array, indices: mx.array, values: mx.array, *, num_outputs: int) -> mx.array: ...

# memory.cpp
def join_in_huge_pages(arrays: list[mx.array]) -> tuple[mx.array, int]: ...

# row_buffers.cpp
def join_rows(pieces: list[mx.array], capacity: int) -> mx.array: ...
def move_rows(buffer: mx.array, num_rows: int, capacity: int) -> mx.array: ...
def read_rows(buffer: mx.array, begin: int, end: int) -> mx.array: ...

# decoder.cpp
class Projection:
    def __init__(
        self,
        words: mx.array,
        scales: mx.array,
        biases: mx.array,
        *,
        bits: int,
        group_size: int,
        num_outputs: int,
        bias: mx.array | None,
    ) -> None: ...

class DecoderLayer:
    def __init__(
        self,
        projections: list[Projection],
        *,
        input_norm: mx.array,
        post_norm: mx.array,
        query_norm: mx.array | None,
        key_norm: mx.array | None,
    ) -> None: ...

class Embedding:
    def __init__(
        self, words: mx.array, scales: mx.array, biases: mx.array, *, bits: int, group_size: int, size: int
    ) -> None: ...

class Entrance:
    def __init__(self, *, embedding_norm: mx.array, hidden_norm: mx.array, projection: Projection) -> None: ...

class Decoder:
    def __init__(
        self,
        *,
        embedding: Embedding | None,
        entrance: Entrance | None,
        layers: list[DecoderLayer],
        final_norm: mx.array,
        head: Projection | None,
        inverse_frequencies: mx.array,
        hidden: int,
        intermediate: int,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        scale: float,
        eps: float,
        rope_in_pairs: bool,
    ) -> None: ...
    def __call__(
        self,
        rows: mx.array,
        segments: list[tuple[int, int, int]],
        wanted: list[int],
        buffers: list[mx.array],
        wants_hidden: bool,
        states: mx.array | None,
    ) -> list[mx.array]: ...
    def now(
        self,
        tokens: list[int],
        segments: list[tuple[int, int, int]],
        wanted: list[int],
        buffers: list[mx.array],
        wants_hidden: bool,
        states: npt.NDArray[np.float32] | None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]: ...

# timing.cpp
def read_rate(num_bytes: int) -> float: ...
def arithmetic_rate() -> float: ...
def product_time(projections: list[Projection], num_rows: int) -> float: ...
