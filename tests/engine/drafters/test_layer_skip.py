"""Middle layers are left out such that what remains is a shorter model of the same kind."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.drafters.layer_skip import CannotSkipError, skipped_run, without_layers
from tests.tiny_configs import CONFIGS
from tests.tiny_models import tiny_model


def layered(num_layers: int, kind: str = "llama") -> nn.Module:
    return tiny_model(kind, CONFIGS[kind] | {"num_hidden_layers": num_layers})


@pytest.mark.parametrize(
    ("num_kept", "skipped"),
    [
        (12, range(0)),
        (10, range(6, 8)),
        (6, range(2, 8)),
        (5, range(1, 8)),
        (4, range(1, 9)),  # the first layer stays to the last
        (1, range(1, 12)),
    ],
)
def test_the_run_ends_at_two_thirds_as_long_as_there_is_room_before(num_kept: int, skipped: range) -> None:
    assert list(skipped_run(layered(12), num_kept)) == list(skipped)


@pytest.mark.parametrize(("num_kept", "num_left"), [(12, 12), (9, 9), (8, 9), (11, 9), (6, 6), (3, 3), (1, 3)])
def test_layers_that_take_turns_go_by_whole_turns(num_kept: int, num_left: int) -> None:
    """Of Gemma's layers, here, every third attends to all rows, the others within a window."""
    model = layered(12, "gemma3_text")
    skipped = skipped_run(model, num_kept)
    left = [getattr(cache, "max_size", None) for i, cache in enumerate(make_prompt_cache(model)) if i not in skipped]
    assert left == [8, 8, None] * (num_left // 3)


def test_nothing_is_skipped_where_every_layer_is_needed() -> None:
    assert not skipped_run(layered(3, "gemma3_text"), 1)


def test_layers_that_share_caches_cannot_be_told_apart() -> None:
    model = tiny_model("gemma3n")
    assert not skipped_run(model, 6)
    with pytest.raises(CannotSkipError, match="not every layer keeps a cache of its own"):
        skipped_run(model, 5)


def test_what_is_left_is_shared_and_the_model_stays_whole() -> None:
    model = layered(4)
    tokens = mx.array([[5, 6, 7]])
    before = model(tokens)
    shallow = without_layers(model, range(1, 3))
    assert shallow.model.embed_tokens is model.model.embed_tokens
    assert shallow.lm_head is model.lm_head
    assert shallow.model.norm is model.model.norm
    assert [id(layer) for layer in shallow.layers] == [id(model.layers[0]), id(model.layers[3])]
    assert mx.array_equal(model(tokens), before)
    assert not mx.allclose(shallow(tokens), before)
