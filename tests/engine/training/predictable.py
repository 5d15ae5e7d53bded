"""A tiny model with something to foresee: after each token comes, most of the time, the next one of a long round."""

import mlx.core as mx

from mtplx.engine.models.loaded import LoadedModel
from tests.fakes import EOS, ByteTokenizer
from tests.tiny_models import tiny_model

VOCAB_SIZE = EOS + 1
CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512,
    "rope_theta": 5000.0,
    "tie_word_embeddings": False,
}


def predictable_model() -> LoadedModel:
    """Its layers hardly matter, and its head answers a token with the one after it: with chances of about .9."""
    model = tiny_model("llama", CONFIG)
    for layer in model.layers:
        layer.self_attn.o_proj.weight *= 0.2
        layer.mlp.down_proj.weight *= 0.2
    embedding = model.model.embed_tokens.weight
    directions = embedding / mx.linalg.norm(embedding, axis=-1, keepdims=True)
    model.lm_head.weight = mx.roll(directions, 1, axis=0) * 2.2
    mx.eval(model.parameters())
    return LoadedModel("predictable", "tests", "llama", "float32", 512, VOCAB_SIZE, model, ByteTokenizer())
