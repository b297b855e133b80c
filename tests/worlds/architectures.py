"""A tiny random LM of every architecture that a fine-tuner meets, made from its config."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging
from worlds.tiny_lms import VOCABULARY, tiny_tokenizer

COMMON = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "pad_token_id": 0}
COMMON |= {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 128}
HALF = {**HEADS, "head_dim": 8}
GPT = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 128}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 32}
WINDOWS = {**HALF, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
MIXED = {**HALF, "moe_intermediate_size": 12, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
DELTA = {"linear_num_value_heads": 2, "linear_num_key_heads": 1, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
MAMBA = {"mamba_d_state": 4, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 4, "mamba_d_head": 8}
MAMBA |= {"mamba_n_groups": 1, "mamba_chunk_size": 16}
SLOW = {"mamba_d_state": 4, "use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1}
HYBRID = ["mamba", "hybrid"]
ZAMBA = {"n_mamba_heads": 2, "num_key_value_heads": 2, "layers_block_type": HYBRID, "layer_types": HYBRID}
ZAMBA |= {"hybrid_layer_ids": [1]}
GRIFFIN = {"lru_width": 16, "attention_window_size": 16}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
LATENT |= {"first_k_dense_replace": 1, "moe_intermediate_size": 12, "num_experts_per_tok": 2}
DBRX = {"attn_config": {"kv_n_heads": 1, "rope_theta": 1e4, "clip_qkv": 8.0}}
DBRX |= {"ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 16}}

ARCHITECTURES: Mapping[str, dict[str, Any]] = {
    "gpt2": GPT,
    "gpt_neo": {"num_heads": 2, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16},
    "gpt_neox": HEADS,
    "gptj": {**GPT, "rotary_dim": 4},
    "gpt_bigcode": GPT,
    "opt": {"ffn_dim": 24, "num_attention_heads": 2, "max_position_embeddings": 128, "word_embed_proj_dim": 16},
    "bloom": {"n_head": 2},
    "mpt": {"d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 128},
    "falcon": {"num_attention_heads": 2, "alibi": True},
    "falcon rope": {"num_attention_heads": 2, "alibi": False, "new_decoder_architecture": True, "num_kv_heads": 1},
    "stablelm": HEADS,
    "phi": HEADS,
    "phi3": HEADS,
    "llama": {**HALF, "rope_parameters": LLAMA3},
    "mistral": {**HALF, "sliding_window": 16},
    "ministral": WINDOWS,
    "qwen2": {**HEADS, "tie_word_embeddings": True},
    "qwen3": HALF,
    "gemma": {**HALF, "tie_word_embeddings": True},
    "gemma2": {**WINDOWS, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "tie_word_embeddings": True},
    "gemma3_text": {**WINDOWS, "tie_word_embeddings": True},
    "smollm3": {**HEADS, "no_rope_layer_interval": 2},
    "olmo": HEADS,
    "olmo2": HEADS,
    "olmo3": WINDOWS,
    "granite": {**HEADS, "logits_scaling": 4.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5},
    "cohere": {**HEADS, "logit_scale": 0.25},
    "cohere2": {**WINDOWS, "logit_scale": 0.25},
    "glm": HALF,
    "glm4": HALF,
    "starcoder2": {**HEADS, "sliding_window": 16},
    "doge": {**HEADS, "sliding_window": 16},
    "mixtral": MIXED,
    "qwen2_moe": {**MIXED, "shared_expert_intermediate_size": 20},
    "qwen3_moe": MIXED,
    "olmoe": MIXED,
    "phimoe": {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
    "granitemoe": MIXED,
    "deepseek_v3": {**HEADS, **LATENT, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_key_value_heads": 2},
    "dbrx": {"d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 128, **DBRX},
    "llama4_text": {**MIXED, "intermediate_size_mlp": 24, "num_experts_per_tok": 1, "attention_chunk_size": 128},
    "jetmoe": {**HEADS, "num_local_experts": 4, "num_experts_per_tok": 2, "kv_channels": 8},
    "gpt_oss": {**MIXED, "sliding_window": 16},
    "mamba": {"state_size": 4, "time_step_rank": 2},
    "mamba2": {"state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1, "expand": 2, "chunk_size": 16},
    "falcon_mamba": {"state_size": 4, "time_step_rank": 2, "intermediate_size": 24},
    "jamba": {**MIXED, **SLOW, "mamba_dt_rank": 2, "expert_layer_period": 2, "expert_layer_offset": 1},
    "bamba": {**HEADS, **MAMBA, "attn_layer_indices": [1], "attn_rotary_emb": 4},
    "falcon_h1": {**HALF, **MAMBA, "mamba_d_ssm": 32},
    "zamba": {**HEADS, **SLOW, **ZAMBA, "mamba_dt_rank": 2, "attention_hidden_size": 32, "attention_head_dim": 16},
    "zamba2": {**HEADS, **SLOW, **ZAMBA, "mamba_ngroups": 1, "chunk_size": 16, "num_mem_blocks": 1},
    "granitemoehybrid": {**MIXED, **MAMBA, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 20},
    "recurrent_gemma": {**HEADS, **GRIFFIN, "block_types": ["recurrent", "attention"]},
    "lfm2": {**HEADS, "layer_types": ["conv", "full_attention"]},
    "qwen3_next": {**MIXED, **DELTA, "layer_types": ["linear_attention", "full_attention"]},
    "qwen3_5_text": {**HALF, **DELTA, "layer_types": ["linear_attention", "full_attention"]},
}
"""Settings of each config; what is behind a space in a name tells two of one type apart."""


def written(folder: Path, kind: str, seed: int = 0) -> Any:
    """Write such an LM, of weights large enough that each token tells, and a tokenizer; returns the LM."""
    logging.disable_progress_bar()
    config = AutoConfig.for_model(kind.split()[0], **{**COMMON, **ARCHITECTURES[kind]})
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model
