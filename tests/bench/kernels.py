"""How fast the native kernels are, beside stock MLX, llama.cpp and what the machine can do.

Run it with nothing else running. Everything compared is measured in turn in one run; a ratio is of medians. llama.cpp
is measured if LLAMA_BENCH names its llama-bench. With JSON=path the rows are written there too. Exits with 1 when a row
falls short.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from mtplx import EngineSession, GenerationConfig
from mtplx.engine.models.default_model import default_model_path
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.running import make_target
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.sampling import TokenHistory, adjust, distribution, draw, most_likely
from mtplx.engine.types import SamplingParams
from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.attention import AttentionSegment, ragged_attention
from mtplx.kernels.decoder import projection
from mtplx.kernels.inputs import Inputs, set_inputs
from mtplx.kernels.layers import NativeEmbedding, NativeLinear
from mtplx.kernels.native_module import native, why_unavailable
from tests.bench.row import Row, finish

PROMPT_TOKENS = 1000
LONG_TOKENS = 4000
NUM_THREADS = 2
WORDS = "The quick brown fox jumps over the lazy dog while the old river carries its stories to the sea. "


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def in_turn(actions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each action, in seconds, all measured in turn."""
    times = [[seconds(action) for action in actions] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


# ---- what is measured -----------------------------------------------------------------------------------------------


def prompt(loaded: LoadedModel, num_tokens: int) -> list[int]:
    return (loaded.tokenizer.encode(WORDS) * num_tokens)[:num_tokens]


def prefilled(target: Target, tokens: Sequence[int]):
    cache = target.new_cache()
    for start in range(0, len(tokens), 250):
        part = tokens[start : start + 250]
        target.forward([Rows(cache, part, 0)])
        cache.commit(len(part))
    return cache


def session_rate(session: EngineSession, tokens: Sequence[int], num_tokens: int = 64) -> float:
    """Tokens a second of plain decoding through EngineSession, after the prompt."""
    session.begin(tokens)
    return num_tokens / seconds(lambda: [session.step() for _ in range(num_tokens)])


def stock_step(model, cache) -> None:
    mx.eval(model(mx.array([[5]]), cache=cache))


def llama_bench(arguments: Sequence[str]) -> float | None:
    """Tokens a second that llama-bench reports, or None if it is not named."""
    program = os.environ.get("LLAMA_BENCH")
    if not program:
        return None
    command = [program, "-m", str(default_model_path()), "-t", str(NUM_THREADS), "-o", "json", "-r", "3", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)[0]["avg_ts"])


def ratio(ours: float, theirs: float | None) -> float | None:
    return None if theirs is None else ours / theirs


def all_products(model) -> list[NativeLinear | NativeEmbedding]:
    """The products of a pass, in their order; the embedding is the output head."""
    layers = [layer for layer in model.modules() if isinstance(layer, NativeLinear | NativeEmbedding)]
    return sorted(layers, key=lambda layer: isinstance(layer, NativeEmbedding))


def weight_bytes(products: Sequence[NativeLinear | NativeEmbedding]) -> int:
    tiles = [layer.tiles for layer in products]
    return sum(each.words.nbytes + each.scales.nbytes + each.biases.nbytes for each in tiles)


# ---- the rows -------------------------------------------------------------------------------------------------------


def decode_rows(session: EngineSession, stock: LoadedModel) -> list[Row]:
    tokens = prompt(stock, 16)
    cache = make_prompt_cache(stock.model)
    mx.eval(stock.model(mx.array(tokens)[None], cache=cache))
    session_rate(session, tokens)
    ours, theirs, llama = [], [], []
    for _ in range(3):
        ours.append(session_rate(session, tokens))
        theirs.append(4 / seconds(lambda: [stock_step(stock.model, cache) for _ in range(4)]))
        llama.append(llama_bench(["-p", "0", "-n", "64"]))
    rate, stock_rate = statistics.median(ours), statistics.median(theirs)
    llama_rate = None if None in llama else statistics.median(llama)
    return [
        Row("plain decode through EngineSession", rate, "tok/s"),
        Row("  stock mlx-lm, float32", stock_rate, "tok/s"),
        Row("  llama.cpp", llama_rate, "tok/s"),
        Row("decode: beside stock mlx-lm", rate / stock_rate, "x", 15),
        Row("decode: beside llama.cpp", ratio(rate, llama_rate), "x", 1.3),
    ]


def prefill_rows(target: Target, stock: LoadedModel) -> list[Row]:
    tokens = prompt(stock, PROMPT_TOKENS)
    prefilled(target, tokens)
    rate = PROMPT_TOKENS / statistics.median(seconds(lambda: prefilled(target, tokens)) for _ in range(3))
    few = tokens[:60]  # its cost is the same for each token, and high

    def stock_prefill() -> None:
        cache = make_prompt_cache(stock.model)
        stock.model(mx.array(few)[None], cache=cache)
        mx.eval([layer.state for layer in cache])

    stock_rate = len(few) / seconds(stock_prefill)
    llama_rate = llama_bench(["-p", str(PROMPT_TOKENS), "-n", "0"])
    return [
        Row("prefill of 1,000 tokens", rate, "tok/s"),
        Row("  stock mlx-lm, float32", stock_rate, "tok/s"),
        Row("  llama.cpp", llama_rate, "tok/s"),
        Row("prefill: beside stock mlx-lm", rate / stock_rate, "x", 15),
        Row("prefill: beside llama.cpp", ratio(rate, llama_rate), "x", 1.8),
    ]


def verify_rows(target: Target, loaded: LoadedModel) -> list[Row]:
    cache = prefilled(target, prompt(loaded, 100))

    def verify(num_rows: int) -> Callable[[], object]:
        def run() -> None:
            target.forward([Rows(cache, [5] * num_rows, num_rows)])
            cache.rollback()

        return run

    counts = (1, 2, 4, 8)
    times = in_turn([verify(count) for count in counts], 40)
    musts = (None, 1.2, 1.5, 2.3)
    rows = [Row("a whole pass, 1 row", times[0] * 1e3, "ms")]
    for count, taken, must in zip(counts[1:], times[1:], musts[1:], strict=True):
        rows.append(Row(f"V({count}): a pass with {count} rows beside one with 1", taken / times[0], "x", must, True))
    return rows


def product_rows(target: Target, loaded: LoadedModel) -> list[Row]:
    products = all_products(loaded.model)
    tiles = [layer.tiles for layer in products]
    num_bytes = weight_bytes(products)
    num_weights = sum(each.num_inputs * each.num_outputs for each in tiles)
    projections = [projection(layer) for layer in products]
    one, eight = (native.product_time(projections, rows) for rows in (1, 8))
    attention = attention_s(loaded, 100)
    cache = prefilled(target, prompt(loaded, 100))

    def decode() -> None:
        target.forward([Rows(cache, [5], 1)])
        cache.rollback()

    [whole] = in_turn([decode], 40)
    read, arithmetic = native.read_rate(num_bytes), native.arithmetic_rate()
    rest = whole - one - attention
    return [
        Row("this machine reads", read / 1e9, "GB/s"),
        Row("this machine multiplies and adds", arithmetic / 1e9, "GFLOP/s"),
        Row("products alone, 1 row", one * 1e3, "ms"),
        Row("  of weights read", num_bytes / one / 1e9, "GB/s"),
        Row("products alone, 8 rows", 2 * 8 * num_weights / eight / 1e9, "GFLOP/s"),
        Row("products alone, 1 row: share of the machine's reading", 100 * num_bytes / one / read, "%", 80),
        Row("attention alone, 100 tokens of context", attention * 1e3, "ms"),
        Row("all that is neither product nor attention", 100 * rest / whole, "% of pass", 15, True),
    ]


def rows_with(inputs: Inputs, target: Target, loaded: LoadedModel) -> list[Row]:
    """The same where products take other inputs, of which nothing is demanded."""
    products = all_products(loaded.model)
    projections = [projection(layer) for layer in products]
    num_bytes = weight_bytes(products)
    chosen = native.input_bytes()
    set_inputs(inputs)
    try:
        one, eight = (native.product_time(projections, rows) for rows in (1, 8))
        rows = verify_rows(target, loaded)
    finally:
        native.set_input_bytes(chosen)
    share = 100 * num_bytes / one / native.read_rate(num_bytes)
    return [
        *(Row(f"{inputs} inputs: {row.name}", row.value, row.unit) for row in rows),
        Row(f"{inputs} inputs: products alone, 8 rows", eight * 1e3, "ms"),
        Row(f"{inputs} inputs: products alone, 1 row: share of the reading", share, "%"),
    ]


def attention_s(loaded: LoadedModel, context: int) -> float:
    """Seconds that the attention of all layers takes for one row: the layers as sequences of one call."""
    attention, num_layers = loaded.model.layers[0].self_attn, len(loaded.model.layers)
    size = attention.k_proj.tiles.num_outputs // attention.n_kv_heads
    shape = (1, attention.n_kv_heads, context + 1, size)
    keys, values = ([mx.random.normal(shape) for _ in range(num_layers)] for _ in range(2))
    queries = mx.random.normal((num_layers, attention.n_heads, size))
    mx.eval(keys, values, queries)
    segments = [AttentionSegment(layer, layer + 1, context) for layer in range(num_layers)]

    def attend() -> None:
        mx.eval(ragged_attention(queries, keys, values, segments, scale=attention.scale).output)

    return in_turn([attend], 40)[0]


def context_rows(session: EngineSession, loaded: LoadedModel) -> list[Row]:
    tokens = prompt(loaded, LONG_TOKENS)
    rates = [session_rate(session, tokens, 32) for _ in range(2)]
    llama_rate = llama_bench(["-p", "0", "-n", "32", "-d", str(LONG_TOKENS)])
    return [
        Row("decode at 4,000 tokens of context", max(rates), "tok/s"),
        Row("  llama.cpp", llama_rate, "tok/s"),
        Row("decode at 4,000 tokens: beside llama.cpp", ratio(max(rates), llama_rate), "x", 1.0),
    ]


def sampling_rows(target: Target, loaded: LoadedModel) -> list[Row]:
    cache = prefilled(target, prompt(loaded, 20))
    [logits] = target.forward([Rows(cache, [5], 1)])
    greedy, sampled = SamplingParams(temperature=0.0), SamplingParams(temperature=0.7, top_p=0.9)
    history = TokenHistory()
    times = in_turn(
        [
            lambda: most_likely(adjust(logits[0], greedy, history)),
            lambda: draw(distribution(adjust(logits[0], sampled, history), sampled), 0.5),
        ],
        100,
    )
    return [Row("a sampled row beside a greedy one", (times[1] - times[0]) * 1e3, "ms more", 0.3, True)]


def main() -> int:
    reason = why_unavailable()
    if reason is not None:
        print(f"there are no native kernels to measure: {reason}", file=sys.stderr)
        return 1
    native.set_num_threads(NUM_THREADS)
    stock = load_model(None)
    loaded = load_model(None)
    accelerate(loaded.model)
    target = make_target(loaded.model)
    rows: list[Row] = []
    with EngineSession(GenerationConfig(speculative_depth=0, max_tokens=100, threads=NUM_THREADS)) as session:
        for measure in (
            lambda: decode_rows(session, stock),
            lambda: prefill_rows(target, stock),
            lambda: verify_rows(target, loaded),
            lambda: product_rows(target, loaded),
            lambda: rows_with("float32", target, loaded),
            lambda: rows_with("int8", target, loaded),
            lambda: context_rows(session, loaded),
            lambda: sampling_rows(target, loaded),
        ):
            for row in measure():
                print(row, flush=True)
                rows.append(row)
    return finish(rows)


if __name__ == "__main__":
    sys.exit(main())
