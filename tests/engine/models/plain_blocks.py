"""Multi-token-prediction blocks written out in plain numpy, from tensors as families publish them. It shares no code
with what it checks."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Tensors = dict[str, Array]
Config = dict[str, Any]


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def rotate(x: Array, num_rotated: int, *, pairs: bool = False) -> Array:
    """x [T, H, d], row i at position i: neighbours are turned together if `pairs`, else the halves."""
    angles = np.arange(x.shape[0])[:, None, None] * 10000.0 ** (-np.arange(0, num_rotated, 2) / num_rotated)
    half = num_rotated // 2
    first = np.arange(0, num_rotated, 2) if pairs else np.arange(half)
    second = first + (1 if pairs else half)
    turned = x.copy()
    turned[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    turned[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return turned


def attend(queries: Array, keys: Array, values: Array) -> Array:
    """Causal: queries [T, H, d], keys and values [T, G, d], each for H / G heads; [T, H * d]."""
    num_rows, num_heads, size = queries.shape
    output = np.zeros((num_rows, num_heads, values.shape[2]))
    for head in range(num_heads):
        group = head * keys.shape[1] // num_heads
        for row in range(num_rows):
            scores = keys[: row + 1, group] @ queries[row, head] / np.sqrt(size)
            output[row, head] = softmax(scores) @ values[: row + 1, group]
    return output.reshape(num_rows, -1)


def linear(tensors: Tensors, name: str, x: Array) -> Array:
    return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", np.zeros(()))


def feed_forward(tensors: Tensors, name: str, x: Array) -> Array:
    gate = linear(tensors, f"{name}.gate_proj", x)
    return linear(tensors, f"{name}.down_proj", gate * sigmoid(gate) * linear(tensors, f"{name}.up_proj", x))


def heads(tensors: Tensors, name: str, x: Array, size: int) -> Array:
    return linear(tensors, f"self_attn.{name}", x).reshape(x.shape[0], -1, size)


def attention_with_biases(tensors: Tensors, config: Config, x: Array) -> Array:
    """MiMo's, which is Qwen2's."""
    size = config["hidden_size"] // config["num_attention_heads"]
    queries, keys, values = (heads(tensors, name, x, size) for name in ("q_proj", "k_proj", "v_proj"))
    return linear(tensors, "self_attn.o_proj", attend(rotate(queries, size), rotate(keys, size), values))


def attention_with_norms(tensors: Tensors, config: Config, x: Array) -> Array:
    """GLM-4.5's."""
    size, eps = config["head_dim"], config["rms_norm_eps"]
    queries, keys, values = (heads(tensors, name, x, size) for name in ("q_proj", "k_proj", "v_proj"))
    queries = rotate(rms_norm(queries, tensors["self_attn.q_norm.weight"], eps), size // 2)
    keys = rotate(rms_norm(keys, tensors["self_attn.k_norm.weight"], eps), size // 2)
    return linear(tensors, "self_attn.o_proj", attend(queries, keys, values))


def attention_with_gates(tensors: Tensors, config: Config, x: Array) -> Array:
    """Qwen3-Next's and Qwen3.5's."""
    size, eps = config["head_dim"], config["rms_norm_eps"]
    both = heads(tensors, "q_proj", x, 2 * size)
    keys, values = (heads(tensors, name, x, size) for name in ("k_proj", "v_proj"))
    queries = rotate(rms_norm(both[..., :size], 1 + tensors["self_attn.q_norm.weight"], eps), size // 2)
    keys = rotate(rms_norm(keys, 1 + tensors["self_attn.k_norm.weight"], eps), size // 2)
    gates = sigmoid(both[..., size:].reshape(x.shape[0], -1))
    return linear(tensors, "self_attn.o_proj", attend(queries, keys, values) * gates)


def latent_attention(tensors: Tensors, config: Config, x: Array) -> Array:
    """DeepSeek-V3's."""
    rotated, plain, rank = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["kv_lora_rank"]
    narrow = rms_norm(linear(tensors, "self_attn.q_a_proj", x), tensors["self_attn.q_a_layernorm.weight"], 1e-6)
    queries = heads(tensors, "q_b_proj", narrow, plain + rotated)
    compressed = linear(tensors, "self_attn.kv_a_proj_with_mqa", x)
    latent = rms_norm(compressed[:, :rank], tensors["self_attn.kv_a_layernorm.weight"], 1e-6)
    expanded = heads(tensors, "kv_b_proj", latent, plain + config["v_head_dim"])
    shared = rotate(compressed[:, None, rank:], rotated, pairs=True).repeat(queries.shape[1], axis=1)
    queries = np.concatenate([queries[..., :plain], rotate(queries[..., plain:], rotated, pairs=True)], axis=-1)
    keys = np.concatenate([expanded[..., :plain], shared], axis=-1)
    return linear(tensors, "self_attn.o_proj", attend(queries, keys, expanded[..., plain:]))


def grouped_experts(tensors: Tensors, config: Config, x: Array) -> Array:
    """DeepSeek-V3's and GLM-4.5's: the best experts of the best group, by the sum of its two best."""
    output = feed_forward(tensors, "mlp.shared_experts", x)
    scores = sigmoid(linear(tensors, "mlp.gate", x))
    for row, own in enumerate(scores):
        biased = (own + tensors["mlp.gate.e_score_correction_bias"]).reshape(config["n_group"], -1)
        group = int(np.sort(biased)[:, -2:].sum(-1).argmax())
        chosen = group * biased.shape[1] + np.argsort(-biased[group])[: config["num_experts_per_tok"]]
        for expert in chosen:
            share = own[expert] / own[chosen].sum() * config["routed_scaling_factor"]
            output[row] += share * feed_forward(tensors, f"mlp.experts.{expert}", x[row])
    return output


def mixed_experts(tensors: Tensors, config: Config, x: Array) -> Array:
    """Qwen3-Next's."""
    output = sigmoid(linear(tensors, "mlp.shared_expert_gate", x)) * feed_forward(tensors, "mlp.shared_expert", x)
    for row, shares in enumerate(softmax(linear(tensors, "mlp.gate", x))):
        for expert in np.argsort(-shares)[: config["num_experts_per_tok"]]:
            output[row] += shares[expert] * feed_forward(tensors, f"mlp.experts.{expert}", x[row])
    return output


def dense(tensors: Tensors, config: Config, x: Array) -> Array:
    return feed_forward(tensors, "mlp", x)


_LAYERS = {
    "deepseek_v3": (latent_attention, grouped_experts),
    "glm4_moe": (attention_with_norms, grouped_experts),
    "qwen3_next": (attention_with_gates, mixed_experts),
    "qwen3_5": (attention_with_gates, dense),
    "mimo": (attention_with_biases, dense),
}


def plain_block(
    model_type: str, tensors: Tensors, names: tuple[str, ...], config: Config, hidden: Array, embeddings: Array
) -> Array:
    """What the block makes of one sequence [T, D], from its tensors, those of the layer without prefix."""
    eps, from_zero = config["rms_norm_eps"], 1.0 if model_type.startswith("qwen") else 0.0

    def norm(name: str, x: Array) -> Array:
        return rms_norm(x, tensors[f"{name}.weight"] + from_zero, eps)

    both = [norm(names[0], embeddings), norm(names[1], hidden)]
    x = linear(tensors, names[2], np.concatenate(both[::-1] if model_type == "mimo" else both, axis=-1))
    attention, experts = _LAYERS[model_type]
    x = x + attention(tensors, config, norm("input_layernorm", x))
    x = x + experts(tensors, config, norm("post_attention_layernorm", x))
    return norm(names[3], x)
