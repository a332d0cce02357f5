"""Values for the configurations of tiny models: by the field's name, and by architecture where a name is not enough.

What a table by name cannot know (a layer pattern, a nested text model) stands in `PARTICULAR`.
"""

from __future__ import annotations

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB, INNER, EXPERTS = 64, 4, 4, 2, 16, 128, 96, 4
WINDOW = 8
"""Of sliding attention: shorter than what the tests run, so that the window really slides."""


def _named(value: object, names: str) -> dict[str, object]:
    return dict.fromkeys(names.split(), value)


COMMON: dict[str, object] = {
    **_named(HIDDEN, "hidden_size dim d_model n_embd model_dim"),
    **_named(LAYERS, "n_layers num_hidden_layers n_layer num_layers num_transformer_layers"),
    **_named(HEADS, "num_attention_heads n_heads n_head num_heads"),
    **_named(KV_HEADS, "num_key_value_heads n_kv_heads num_kv_heads"),
    **_named(HEAD_DIM, "head_dim"),
    **_named(INNER, "intermediate_size ffn_hidden_size n_inner mlp_hidden_size d_ff ffn_dim hidden_dim"),
    **_named(VOCAB, "vocab_size n_vocab"),
    **_named(
        1e-5,
        "rms_norm_eps norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_epsilon layer_norm_rms_epsilon",
    ),
    **_named(10000.0, "rope_theta"),
    **_named(512, "max_position_embeddings max_seq_len n_positions n_ctx context_length"),
    **_named(WINDOW, "sliding_window window_size"),
    **_named(EXPERTS, "num_experts num_local_experts n_routed_experts"),
    **_named(2, "num_experts_per_tok"),
    **_named(32, "moe_intermediate_size shared_expert_intermediate_size"),
    **_named(1, "n_shared_experts num_shared_experts decoder_sparse_step first_k_dense_replace moe_layer_freq n_group"),
    **_named(1, "topk_group"),
    **_named(1.0, "routed_scaling_factor"),
    **_named(True, "norm_topk_prob use_conv_bias use_qk_norm"),
    **_named(24, "kv_lora_rank"),
    **_named(16, "qk_nope_head_dim v_head_dim"),
    **_named(8, "qk_rope_head_dim state_size ssm_state_size d_state"),
    **_named(None, "q_lora_rank"),
    **_named(4, "conv_kernel time_step_rank d_conv"),
    **_named(2, "expand"),
    **_named(False, "tie_word_embeddings attention_bias mlp_bias use_bias rope_traditional"),
    **_named(["full_attention"] * LAYERS, "layer_types"),
    **_named([], "mlp_only_layers"),
    **_named(0.5, "partial_rotary_factor"),
    **_named("silu", "hidden_act"),
    **_named(0, "bos_token_id pad_token_id"),
    **_named(1, "eos_token_id"),
}
"""Values by the field's name."""

ALTERNATING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
YARN = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0}
ROPE = {"type": "default", "rope_type": "default", "rope_theta": 10000.0}
LLAMA_4 = {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64}
INDEXER: dict[str, object] = {"index_head_dim": 16, "index_n_heads": 2, "index_topk": WINDOW, "q_lora_rank": 16}
MAMBA: dict[str, object] = {
    **_named(16, "mamba_d_head mamba_head_dim"),
    **_named(4, "mamba_n_heads mamba_num_heads mamba_d_conv"),
    **_named(8, "mamba_d_state mamba_d_ssm"),
    "mamba_n_groups": 1,
}
KDA = {
    "kda_layers": [1, 2, 3],
    "full_attn_layers": [4],
    "num_heads": 2,
    "head_dim": 32,
    "short_conv_kernel_size": 4,
    "gate_lower_bound": -5.0,
}
GATED_DELTA: dict[str, object] = {
    **_named(2, "linear_num_value_heads linear_num_key_heads full_attention_interval"),
    **_named(32, "linear_key_head_dim linear_value_head_dim"),
    "linear_conv_kernel_dim": 4,
}

PARTICULAR: dict[str, dict[str, object]] = {
    "afm7": {"num_kv_reuse_layers": 1},
    **{
        name: {"layer_types": ALTERNATING}
        for name in ("afmoe", "cohere2", "laguna", "llama", "muse_glimmer", "step3p5")
    },
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"] * (LAYERS // 2)},
    "iquestloopcoder": {"loop_window_size": WINDOW},
    "plamo3": {"sliding_window_pattern": 2},
    "baichuan_m1": {"conv_window": 2, "sliding_window_layers": [0, 2]},
    "dbrx": {
        "ffn_config": {"ffn_hidden_size": INNER, "moe_num_experts": EXPERTS, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": KV_HEADS, "clip_qkv": 8.0, "rope_theta": 10000.0},
    },
    "deepseek_v2": {"rope_scaling": YARN, "q_lora_rank": 16},
    "deepseek_v32": {**INDEXER},
    "deepseek_v41": {
        **INDEXER,
        "compress_ratios": (0,) * LAYERS,
        "o_groups": 2,
        "o_lora_rank": 16,
        "candidate_topk_blocks": 4,
        "hc_mult": 2,
    },
    "exaone4": {"sliding_window_pattern": "LG", "rope_scaling": None},
    "exaone_moe": {"is_moe_layer": [False, True] * (LAYERS // 2), "layer_types": ALTERNATING},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "gemma3_text": {"sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
    "gemma3": {"sliding_window_pattern": 2, "query_pre_attn_scalar": 16},
    "gemma3n": {
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCAB,
        "final_logit_softcapping": 30.0,
        "layer_types": ALTERNATING,
        "activation_sparsity_pattern": [0.5] * LAYERS,
        "hidden_size_per_layer_input": 8,
        "altup_num_inputs": 2,
        "altup_coef_clip": 100.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 8,
    },
    "gemma4": {
        "layer_types": ALTERNATING,
        "global_head_dim": 16,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "num_experts": None,
    },
    "gemma4_text": {
        "layer_types": ALTERNATING,
        "global_head_dim": 16,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "num_experts": None,
    },
    "glm_moe_dsa": {**INDEXER, "rope_parameters": ROPE, "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
    "gpt_oss": {"layer_types": ALTERNATING},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {
        **MAMBA,
        "layer_types": ["mamba", "attention"] * (LAYERS // 2),
        "mamba_proj_bias": False,
        "mamba_conv_bias": True,
        "shared_intermediate_size": 32,
    },
    "hunyuan": {
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"},
        "cla_share_factor": 2,
        "use_cla": True,
        "moe_topk": 2,
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
    },
    "jamba": {
        **MAMBA,
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_expand": 2,
    },
    "kimi_k25": {"rope_scaling": None},
    "kimi_k3": {
        "linear_attn_config": KDA,
        "hidden_act": "situ",
        "attn_res_block_size": 2,
        "num_experts_per_token": 2,
        "activation_situ_beta": 1.0,
        "activation_situ_linear_beta": 1.0,
    },
    "kimi_linear": {"linear_attn_config": KDA, "num_experts_per_token": 2},
    "lfm2": {
        "layer_types": ["conv", "full_attention"] * (LAYERS // 2),
        "block_dim": HIDDEN,
        "block_multiple_of": 8,
        "conv_L_cache": 3,
    },
    "lfm2-vl": {
        "layer_types": ["conv", "full_attention"] * (LAYERS // 2),
        "block_dim": HIDDEN,
        "block_multiple_of": 8,
        "conv_L_cache": 3,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2), "num_dense_layers": 1, "conv_L_cache": 3},
    "llama4": {
        "attention_chunk_size": WINDOW,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": INNER,
        "rope_scaling": None,
    },
    "llama4_text": {"no_rope_layers": [1, 1, 1, 0], "intermediate_size_mlp": INNER},
    "longcat_flash": {
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
        "q_lora_rank": 16,
        "moe_topk": 2,
        "expert_ffn_hidden_size": 32,
        "zero_expert_num": 1,
        "zero_expert_type": "identity",
        "attention_method": "MLA",
    },
    "longcat_flash_ngram": {
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
        "q_lora_rank": 16,
        "moe_topk": 2,
        "expert_ffn_hidden_size": 32,
        "zero_expert_num": 1,
        "zero_expert_type": "identity",
        "attention_method": "MLA",
    },
    "mamba2": {"time_step_limit": (0.0, 100.0), "n_groups": 1, "intermediate_size": 64},
    "mellum": {"layer_types": ALTERNATING, "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [1, 0] * (LAYERS // 2),
        "moe_layer_freq": [0, 1] * (LAYERS // 2),
        "add_swa_attention_sink_bias": True,
        "sliding_window_size": WINDOW,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
        "swa_num_attention_heads": HEADS,
        "swa_num_key_value_heads": KV_HEADS,
        "swa_rope_theta": 10000.0,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
    "minicpm3": {
        "q_lora_rank": 16,
        "rope_scaling": {
            "type": "longrope",
            "original_max_position_embeddings": 512,
            "short_factor": [1.0] * 4,
            "long_factor": [1.0] * 4,
        },
    },
    "minimax_m3_vl": {
        "dense_intermediate_size": INNER,
        "shared_intermediate_size": 32,
        "moe_layer_freq": [0, 1, 1, 1],
        "layer_types": None,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_block_size": 2,
        "index_topk_blocks": 3,
    },
    "ministral3": {"rope_parameters": ROPE | LLAMA_4, "layer_types": ALTERNATING},
    "mistral4": {"rope_parameters": ROPE | YARN | LLAMA_4, "q_lora_rank": 16},
    "muse_spark": {
        "rope_parameters": ROPE,
        "layer_rope_theta": [10000.0, 0.0] * (LAYERS // 2),
        "layer_types": ALTERNATING,
        "final_logit_softcapping": 30.0,
        "output_multiplier": 1.0,
        "moe_hidden_size": HIDDEN,
        "post_norm_eps": 1e-5,
        "num_shared_experts": 0,
        "vision_config": None,
    },
    "nemotron-nas": {
        "block_configs": [
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.5}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.5}},
            {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.5}},
            {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}},
        ]
    },
    "nemotron_h": {
        **MAMBA,
        "hybrid_override_pattern": ["M", "*", "-", "E"],
        "layer_types": None,
        "n_groups": 1,
        "moe_shared_expert_intermediate_size": 32,
    },
    "olmo": {"embedding_size": VOCAB},
    "olmo3": {"layer_types": ALTERNATING},
    "openelm": {
        "num_query_heads": [4, 4, 2, 2],
        "num_kv_heads": [2, 2, 1, 1],
        "ffn_multipliers": [1.0] * LAYERS,
        "ffn_dim_divisor": 8,
    },
    "phi3small": {
        "dense_attention_every_n_layers": 2,
        "ff_intermediate_size": INNER,
        "gegelu_limit": 20.0,
        "blocksparse_num_local_blocks": 2,
        "blocksparse_vert_stride": 2,
    },
    "phixtral": {"rotary_dim": 8, "num_vocab": VOCAB},
    "plamo": {"n_shared_head": 2},
    "qwen": {"kv_channels": HEAD_DIM},
    "qwen3_5": {**GATED_DELTA},
    "qwen3_5_moe": {**GATED_DELTA},
    "qwen3_next": {**GATED_DELTA},
    "recurrent_gemma": {
        "block_types": ["recurrent", "attention"],
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "attention_window_size": WINDOW,
        "num_key_value_heads": 1,
    },
    "spark2_5": {
        "layer_types": ALTERNATING,
        "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE},
        "hidden_act": "gelu",
    },
}
"""Values that only one architecture takes, or takes otherwise; those of a nested text model too."""

TEXT_MODEL = {
    "gemma3": "gemma3_text.ModelArgs",
    "gemma3n": "gemma3n.TextConfig",
    "gemma4": "gemma4_text.ModelArgs",
    "kimi_k25": "deepseek_v3.ModelArgs",
    "kimi_k3": "kimi_k3.TextArgs",
    "kimi_vl": "kimi_vl.TextArgs",
    "lfm2-vl": "lfm2.ModelArgs",
    "llama4": "llama4.TextArgs",
    "minimax_m3_vl": "minimax_m3_vl.TextArgs",
    "mistral3": "llama.ModelArgs",
    "muse_spark": "muse_spark.TextArgs",
    "pixtral": "llama.ModelArgs",
    "qwen2_vl": "qwen2.ModelArgs",
    "qwen3_5": "qwen3_5.TextModelArgs",
    "qwen3_5_moe": "qwen3_5.TextModelArgs",
    "qwen3_vl": "qwen3.ModelArgs",
    "qwen3_vl_moe": "qwen3_moe.ModelArgs",
}
"""The configuration that the field `text_config` holds, by architecture."""

SKIPPED = {
    "bitnet": "its linear layers are a Metal kernel: it runs on Apple hardware only",
    "prism_hadamard_qwen35": "it is built from a manifest of packed 2-bit modules, which only a real pack has",
    "muse_spark": "its query and key norms are a Metal kernel: it runs on Apple hardware only",
    "olmo": "mlx-lm's code for it fails on every prompt of more than one token: it adds the mask's name, a text",
    "phi3small": "mlx-lm's code for it crashes MLX on a CPU, untapped too",
}
"""What cannot be built small, or not here, and why."""
