"""What the tiny models of each architecture are like: the config.json of mlx-lm's, of the smallest sizes that matter.

Windows are narrow, so that short texts go past them; every kind of layer that an architecture mixes occurs at least
twice.
"""

from typing import Any

VOCAB_SIZE = 296  # a few rows more than the tokenizer has tokens, as real models have

TRANSFORMER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 3,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
_WINDOWED = {
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
_GROUPED_EXPERTS = {
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_group": 2,
    "topk_group": 1,
    "routed_scaling_factor": 1.5,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "rope_scaling": None,
}
_MINISTRAL = (
    TRANSFORMER
    | _WINDOWED
    | {
        "rope_parameters": {
            "rope_theta": 10000.0,
            "rope_type": "default",
            "llama_4_scaling_beta": 0.5,
            "original_max_position_embeddings": 8,  # the scale of attention grows every 8 positions
        },
    }
)

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": TRANSFORMER | {"hidden_size": 48},  # no whole number of blocks that quantization takes
    "qwen2": TRANSFORMER,
    "qwen3": TRANSFORMER,
    "phi3": TRANSFORMER,
    "ministral3": _MINISTRAL,
    "mistral3": {"text_config": _MINISTRAL | {"model_type": "ministral3"}},
    "gemma2": TRANSFORMER | {"num_hidden_layers": 4, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 20.0},
    "gemma3_text": TRANSFORMER
    | {"num_hidden_layers": 6, "sliding_window": 8, "sliding_window_pattern": 3, "query_pre_attn_scalar": 16},
    "gemma3n": {
        "text_config": TRANSFORMER
        | {
            "model_type": "gemma3n_text",
            "hidden_size": 48,
            "num_hidden_layers": 6,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
            "sliding_window": 8,
            "rope_local_base_freq": 10000.0,
            "vocab_size_per_layer_input": VOCAB_SIZE,
            "hidden_size_per_layer_input": 8,
            "final_logit_softcapping": 30.0,
            "activation_sparsity_pattern": [0.5] + [0.0] * 5,
            "altup_num_inputs": 2,
            "altup_coef_clip": 120.0,
            "altup_correct_scale": True,
            "altup_active_idx": 0,
            "laurel_rank": 4,
        }
    },
    "qwen3_moe": TRANSFORMER
    | {
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    },
    "glm4_moe": TRANSFORMER
    | _GROUPED_EXPERTS
    | {"use_qk_norm": True, "attention_bias": True, "partial_rotary_factor": 0.5},
    "gpt_oss": TRANSFORMER | _WINDOWED | {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 64},
    "deepseek_v3": TRANSFORMER
    | _GROUPED_EXPERTS
    | {
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "q_lora_rank": 24,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
    },
    "mamba2": {
        "num_heads": 4,
        "head_dim": 16,
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 64,
        "state_size": 16,
        "num_hidden_layers": 3,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": False,
        "time_step_limit": [0.001, 100.0],
        "time_step_rank": "auto",
        "max_position_embeddings": 512,
    },
    "falcon_h1": TRANSFORMER
    | {
        "mamba_d_ssm": 64,
        "mamba_d_state": 16,
        "mamba_d_head": 16,
        "mamba_n_heads": 4,
        "mamba_d_conv": 4,
    },
    "qwen3_next": TRANSFORMER
    | {
        "num_hidden_layers": 4,
        "full_attention_interval": 2,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "partial_rotary_factor": 0.5,
    },
    "lfm2": TRANSFORMER
    | {
        "num_hidden_layers": 4,
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 96,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention"] * 2,
    },
}
