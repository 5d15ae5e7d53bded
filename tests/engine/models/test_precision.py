"""In how few words the formats of a model's weights can be said."""

from pathlib import Path

import pytest

from mtplx.engine.models.gguf_model import load_gguf
from tests.tiny_gguf import TinyGguf


@pytest.mark.parametrize(
    ("types", "tied", "words"),
    [
        ({"": "Q4_0"}, False, "4-bit"),
        ({"": "F32"}, True, "float32"),
        ({"embed_tokens": "Q8_0", "": "Q4_0"}, True, "4-bit layers, 8-bit embedding and head"),
        ({"embed_tokens": "Q8_0", "lm_head": "Q8_0", "": "Q4_1"}, False, "4-bit layers, 8-bit embedding and head"),
        ({"lm_head": "Q8_0", "": "Q4_0"}, False, "4-bit layers, 4-bit embedding, 8-bit head"),
        ({"v_proj": "Q8_0", "": "Q4_0"}, False, "4-bit and 8-bit layers, 4-bit embedding and head"),
    ],
)
def test_formats_are_told_by_part(types: dict[str, str], tied: bool, words: str, tmp_path: Path) -> None:
    TinyGguf(types=types, tied=tied).write(tmp_path / "tiny.gguf")
    assert load_gguf(tmp_path / "tiny.gguf", model_id="tiny").quantization == words
