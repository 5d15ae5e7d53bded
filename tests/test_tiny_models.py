"""The models that tests decode with are hard enough: their text wanders, and the first token matters to the end."""

from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from mtplx.engine.models.loading import load_model
from tests.tiny_configs import CONFIGS
from tests.tiny_models import tiny_model_folder

PROMPT = [(5 + 37 * place) % 250 for place in range(30)]


@pytest.mark.parametrize("model_type", CONFIGS)
def test_the_first_of_thirty_tokens_changes_the_logits(model_type: str, tmp_path: Path) -> None:
    model = load_model(str(tiny_model_folder(tmp_path, model_type))).model
    one, other = (model(mx.array([[first, *PROMPT]]))[0, -1] for first in (7, 8))
    assert float(mx.abs(one - other).max()) > 0.05


@pytest.mark.parametrize("model_type", CONFIGS)
def test_greedy_text_does_not_repeat_itself(model_type: str, tmp_path: Path) -> None:
    model = load_model(str(tiny_model_folder(tmp_path, model_type))).model
    cache = make_prompt_cache(model)
    tokens = [PROMPT[0]]
    for _ in range(40):
        tokens.append(int(model(mx.array([tokens[-1:]]), cache=cache)[0, -1].argmax()))
    assert len(set(tokens)) > 15
