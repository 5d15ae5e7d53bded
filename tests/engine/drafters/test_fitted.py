"""A draft model is fitted to the target's logits, and refused if its tokens are others."""

import mlx.nn as nn
import numpy as np
import pytest

from mtplx.engine.drafters.fitted import FittedTarget, check_same_tokens
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.target import Rows
from mtplx.engine.sampling import distribution
from mtplx.engine.types import SamplingParams
from tests.fakes import EOS, ByteTokenizer, TabularTarget


def fitted(num_own: int, num_wanted: int) -> tuple[FittedTarget, TabularTarget]:
    model = TabularTarget(vocab_size=num_own, seed=2)
    return FittedTarget(model, num_own=num_own, num_wanted=num_wanted), model


@pytest.mark.parametrize("temperature", [0.01, 1.0, 2.0])
def test_tokens_that_the_model_lacks_have_no_probability(temperature: float) -> None:
    target, model = fitted(num_own=6, num_wanted=9)
    [logits] = target.forward([Rows(target.new_cache(), [1, 2], 2)])
    assert logits.shape == (2, 9)
    np.testing.assert_array_equal(logits[1, :6], model.logits([1, 2]))
    params = SamplingParams(temperature=temperature, logit_bias={7: 100.0})
    q = distribution(logits[1].astype(np.float64), params)
    np.testing.assert_array_equal(q[6:], 0.0)
    assert q.sum() == pytest.approx(1.0)


def test_tokens_that_the_target_lacks_are_cut_off() -> None:
    target, model = fitted(num_own=9, num_wanted=6)
    [logits] = target.forward([Rows(target.new_cache(), [1, 2], 1)])
    np.testing.assert_array_equal(logits[0], model.logits([1, 2])[:6])


def test_a_text_may_have_tokens_that_the_model_lacks() -> None:
    target, model = fitted(num_own=6, num_wanted=9)
    [logits] = target.forward([Rows(target.new_cache(), [1, 8], 1)])
    np.testing.assert_array_equal(logits[0, :6], model.logits([1, 0]))


def test_rows_without_logits_stay_without() -> None:
    target, _ = fitted(num_own=6, num_wanted=9)
    assert len(target.forward([Rows(target.new_cache(), [1, 2], 0)])[0]) == 0


class OtherTokenizer(ByteTokenizer):
    """One whose tokens differ."""

    def __init__(self, changes: dict[int, str | None], eos: frozenset[int] = frozenset({EOS})) -> None:
        self._changes = changes
        self.eos_token_ids = eos

    def vocabulary(self) -> dict[int, str]:
        changed = super().vocabulary() | self._changes
        return {token: text for token, text in changed.items() if text is not None}


def loaded(name: str, tokenizer: ByteTokenizer, vocab_size: int = 300) -> LoadedModel:
    return LoadedModel(name, "nowhere", "tabular", "none", 100, vocab_size, nn.Module(), tokenizer)


TARGET = loaded("large", ByteTokenizer())


def test_padding_of_the_logits_makes_no_other_vocabulary() -> None:
    check_same_tokens(TARGET, loaded("small", ByteTokenizer(), vocab_size=320))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({97: "b", 90: "y"}, "small can't draft for large: token 90 is 'y' to it, not 'Z'; choose"),
        ({256: None}, "small can't draft for large: token 256 is unknown to it, not '<end>'; choose"),
        ({257: "<think>"}, "small can't draft for large: token 257 is '<think>' to it, not unknown; choose"),
    ],
)
def test_the_first_token_that_differs_is_named(changes: dict[int, str | None], message: str) -> None:
    with pytest.raises(ModelLoadError) as refused:
        check_same_tokens(TARGET, loaded("small", OtherTokenizer(changes)))
    assert str(refused.value).startswith(message)


def test_texts_must_end_alike() -> None:
    check_same_tokens(TARGET, loaded("small", OtherTokenizer({}, frozenset({EOS, 3}))))
    with pytest.raises(ModelLoadError, match=r"a text ends with the tokens \[3\] to it, not \[256\]"):
        check_same_tokens(TARGET, loaded("small", OtherTokenizer({}, frozenset({3}))))
