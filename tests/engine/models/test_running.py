"""A model runs by rows only where that gives what mlx-lm's own forward gives, and must run one way or the other."""

import logging
from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models import gemma3_text, llama
from mlx_lm.models.cache import KVCache

from mtplx.engine import rows
from mtplx.engine.drafters.self_draft import NoSelfDrafterError, self_drafter
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.fused_target import FusedTarget
from mtplx.engine.models.running import make_target, row_type
from mtplx.engine.models.target import Rows
from mtplx.kernels.accelerate import accelerate
from mtplx.kernels.attention import Attended
from tests.fakes import ByteTokenizer
from tests.kernels.availability import needs_native
from tests.tiny_configs import CONFIGS, TRANSFORMER, VOCAB_SIZE
from tests.tiny_models import tiny_model

WINDOW = CONFIGS["gemma3_text"]["sliding_window"]


def test_an_attention_of_the_models_own_keeps_it_from_running_by_rows() -> None:
    config = TRANSFORMER | {"query_pre_attn_scalar": 16.0}
    assert make_target(tiny_model("gemma2", config)).way == "sequential"


class Shifted(llama.Model):
    """Mixes each token with the one before it, which rows do not see."""

    def __call__(self, inputs: mx.array, cache: object = None) -> mx.array:
        logits = super().__call__(inputs, cache)
        return logits + 0.1 * mx.pad(logits, [(0, 0), (1, 0), (0, 0)])[:, :-1]


def test_logits_that_come_out_otherwise_keep_a_model_from_running_by_rows() -> None:
    """Nothing about such a model looks unusual: only comparing its logits tells."""
    model = tiny_model("llama")
    assert make_target(model).way == "rows"
    model.__class__ = Shifted
    assert make_target(model).way == "sequential"


class ShortSighted(gemma3_text.Model):
    """Is another model on texts longer than its window."""

    def __call__(self, inputs: mx.array, cache: object = None) -> mx.array:
        logits = super().__call__(inputs, cache)
        return logits[..., ::-1] if inputs.shape[1] > WINDOW else logits


def test_a_narrow_window_is_looked_past() -> None:
    model = tiny_model("gemma3_text")
    model.__class__ = ShortSighted
    assert make_target(model).way == "sequential"


@pytest.mark.parametrize("window", [8, 512])
def test_a_mask_of_another_window_than_the_caches_keeps_a_model_from_running_by_rows(window: int) -> None:
    """plamo3 masks one row more than its caches keep, whether its window is narrow enough to be looked past or not."""
    config = TRANSFORMER | {"window_size": window, "sliding_window_pattern": 3}
    assert make_target(tiny_model("plamo3", config)).way == "sequential"


def test_a_wide_window_is_no_reason_to_run_one_sequence_at_a_time() -> None:
    assert make_target(tiny_model("gemma3_text", CONFIGS["gemma3_text"] | {"sliding_window": 512})).way == "rows"


class Unable(llama.Model):
    def __call__(self, inputs: mx.array, cache: object = None) -> mx.array:
        raise ValueError("this architecture lacks a part")


def test_a_model_that_runs_neither_way_is_refused_at_load() -> None:
    model = tiny_model("llama")
    model.__class__ = Unable
    with pytest.raises(ModelLoadError, match="lacks a part"):
        make_target(model)


class Whole:
    def __deepcopy__(self, memo: object) -> None:
        """No copy is like it."""


class Unforgiving(KVCache):
    """Of a kind that cannot be shortened, and of no use once it has been brought back to what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Whole()

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if not isinstance(self.part, Whole):
            raise ValueError("this cache has been broken")
        return super().update_and_fetch(keys, values)


def test_a_model_that_cannot_go_back_is_refused_at_load() -> None:
    model = tiny_model("llama")
    model.make_cache = lambda: [Unforgiving() for _ in model.layers]
    with pytest.raises(ModelLoadError, match="has been broken"):
        make_target(model)


def test_a_model_that_does_not_run_without_some_layers_has_no_self_drafter() -> None:
    """baichuan_m1 asks the cache of its first layer with full attention, wherever that is, for a mask."""
    config = TRANSFORMER | {"sliding_window": 8, "sliding_window_layers": [0, 1], "conv_window": 2}
    model = tiny_model("baichuan_m1", config)
    with pytest.raises(NoSelfDrafterError, match="does not run"):
        self_drafter(model, make_target(model), ByteTokenizer(), num_layers=1)


@needs_native
@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_native_attention_that_differs_is_left_out_loudly(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model(kind)
    accelerate(model)
    assert make_target(model).is_native

    def wrong(queries: mx.array, keys: list[mx.array], values: list[mx.array], *_: object, **__: object) -> Attended:
        return Attended(mx.zeros_like(queries), keys, values)

    monkeypatch.setattr(rows, "ragged_attention", wrong)
    with caplog.at_level(logging.ERROR):
        target = make_target(model)
    assert target.way == "rows"
    assert not target.is_native
    assert "MLX's own attention serves" in caplog.text


@needs_native
def test_fused_layers_that_differ_are_left_out_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_model("llama", CONFIGS["llama"] | {"hidden_size": 64})
    nn.quantize(model, group_size=32, bits=8)
    accelerate(model)
    assert row_type(make_target(model)) == "float32"
    assert row_type(make_target(model, half_rows=True)) == "float16"

    def wrong(_: FusedTarget, batch: Sequence[Rows], *, keeps_hidden: bool) -> tuple[mx.array, None]:
        return mx.zeros((sum(entry.num_logits for entry in batch), VOCAB_SIZE)), None

    monkeypatch.setattr(FusedTarget, "_run", wrong)
    with caplog.at_level(logging.ERROR):
        target = make_target(model)
    assert target.way == "rows"
    assert row_type(target) is None
    assert "MLX's own attention serves" in caplog.text


@needs_native
def test_keys_that_float16_cannot_hold_are_kept_in_float32(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model("llama", CONFIGS["llama"] | {"hidden_size": 64})
    nn.quantize(model, group_size=32, bits=8)
    for layer in model.layers:  # large keys, and queries as much smaller: the same scores
        for product, factor in ((layer.self_attn.k_proj, 1e6), (layer.self_attn.q_proj, 1e-6)):
            product.scales, product.biases = product.scales * factor, product.biases * factor
    accelerate(model)
    with caplog.at_level(logging.ERROR):
        target = make_target(model, half_rows=True)
    assert row_type(target) == "float32"
    assert "kept in float32" in caplog.text
