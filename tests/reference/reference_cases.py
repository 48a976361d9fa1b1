# SPDX-License-Identifier: Apache-2.0
"""The model directories that make_reference.py makes, by name."""
import torch
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3Config, Gemma3ForCausalLM,
                          Gemma3ForConditionalGeneration, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel,
                          LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config,
                          Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM, SiglipVisionConfig)

# In Transformers' memory, and in the files of its save_pretrained.
MULTIMODAL_NAMES = {"model.language_model.": "language_model.model.", "lm_head.": "language_model.lm_head."}


def small_vision():
    return SiglipVisionConfig(hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
                              image_size=8, patch_size=4)


# scale: standard deviation of the matrices. Larger than a fresh model's, so that every part matters.
# spelling=4: config.json as Transformers 4 wrote it, without the members left_out. text: the prefixes of what is
# trained of a model of more than text, and what they are in the files. toml: a file of --config, for what is trained how.
CASES = {
    "gqa_untied": dict(
        model=LlamaForCausalLM, length=24, clip=2.0, scale=0.12, seed=22,
        config=LlamaConfig(
            hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "mha_tied_llama3": dict(
        model=LlamaForCausalLM, length=33, clip=1.4, scale=0.12, seed=12,
        config=LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=4, vocab_size=131, max_position_embeddings=128, rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="llama3", rope_theta=1000.0, factor=4.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=48))),
    "five_heads": dict(
        model=LlamaForCausalLM, length=17, clip=2.3, scale=0.1, seed=13,
        config=LlamaConfig(
            hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=5,
            num_key_value_heads=5, head_dim=12, vocab_size=997, max_position_embeddings=64,
            rms_norm_eps=1e-5, tie_word_embeddings=True)),
    "sharded_bf16": dict(
        model=LlamaForCausalLM, length=20, clip=2.3, scale=0.12, seed=14, dtype=torch.bfloat16,
        shard_size="24KB",
        config=LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
    "window": dict(
        model=MistralForCausalLM, length=21, clip=1.2, scale=0.15, seed=15,
        config=MistralConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=53, max_position_embeddings=64, rms_norm_eps=1e-5,
            sliding_window=6, tie_word_embeddings=False)),
    "llama_biases": dict(
        model=LlamaForCausalLM, length=18, clip=1.1, scale=0.15, seed=16,
        config=LlamaConfig(
            hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=4, head_dim=16, vocab_size=59, max_position_embeddings=64,
            rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "gpt2": dict(
        model=GPT2LMHeadModel, length=21, clip=1.2, scale=0.12, seed=20, shard_size="60KB",
        config=GPT2Config(
            n_embd=36, n_layer=2, n_head=3, n_positions=40, vocab_size=61, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)),
    "gpt2_bare": dict(
        model=GPT2LMHeadModel, length=17, clip=0.95, scale=0.15, seed=21, bare="transformer.",
        config=GPT2Config(
            n_embd=20, n_layer=1, n_head=4, n_positions=24, n_inner=52, vocab_size=53, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, tie_word_embeddings=False,
            activation_function="gelu_pytorch_tanh")),
    "phi3": dict(
        model=Phi3ForCausalLM, length=20, clip=2.0, scale=0.13, seed=23, dtype=torch.bfloat16,
        config=Phi3Config(
            hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=61, max_position_embeddings=128, sliding_window=7,
            original_max_position_embeddings=64, pad_token_id=0, bos_token_id=0, eos_token_id=0,
            rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, original_max_position_embeddings=64,
                                 short_factor=[1.0, 1.1, 1.25, 1.5], long_factor=[1.0, 2.0, 3.5, 6.0]))),
    "phi3_long": dict(
        model=Phi3ForCausalLM, length=19, clip=2.4, scale=0.13, seed=24,
        config=Phi3Config(
            hidden_size=40, intermediate_size=36, num_hidden_layers=2, num_attention_heads=5,
            num_key_value_heads=5, vocab_size=67, max_position_embeddings=48, tie_word_embeddings=True,
            original_max_position_embeddings=12, pad_token_id=0, bos_token_id=0, eos_token_id=0,
            rope_parameters=dict(rope_type="longrope", rope_theta=100.0, original_max_position_embeddings=12,
                                 partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.3],
                                 long_factor=[1.2, 2.0, 3.5]))),
    "float16": dict(
        model=LlamaForCausalLM, length=22, clip=1.9, scale=0.13, seed=18, dtype=torch.float16,
        config=LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "fp8": dict(
        model=LlamaForCausalLM, length=18, clip=2.0, scale=0.13, seed=19, dtype=torch.bfloat16, blocks=(16, 12),
        config=LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "qwen2": dict(
        model=Qwen2ForCausalLM, length=19, clip=2.0, scale=0.15, seed=17,
        config=Qwen2Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=True)),
    "qwen2_windows": dict(
        model=Qwen2ForCausalLM, length=22, clip=1.3, scale=0.15, seed=18, spelling=4,
        config=Qwen2Config(
            hidden_size=20, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=True, use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    "mistral_bf16": dict(
        model=MistralForCausalLM, length=17, clip=2.1, scale=0.15, seed=19, dtype=torch.bfloat16, spelling=4,
        config=MistralConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-5,
            sliding_window=None, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "yarn_multi_query": dict(
        model=LlamaForCausalLM, length=40, clip=1.2, scale=0.15, seed=20,
        config=LlamaConfig(
            hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=71, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
            rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, beta_fast=4.0, beta_slow=0.5,
                                 original_max_position_embeddings=16))),
    "smollm": dict(
        model=LlamaForCausalLM, length=19, clip=2.5, scale=0.15, seed=21, spelling=4,
        config=LlamaConfig(
            hidden_size=36, intermediate_size=24, num_hidden_layers=2, num_attention_heads=9,
            num_key_value_heads=3, vocab_size=73, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True)),
    "tinyllama": dict(
        model=LlamaForCausalLM, length=18, clip=1.4, scale=0.15, seed=23,
        config=LlamaConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=8,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "smollm_mha": dict(
        model=LlamaForCausalLM, length=22, clip=1.6, scale=0.15, seed=32, dtype=torch.bfloat16, spelling=4,
        config=LlamaConfig(
            hidden_size=28, intermediate_size=37, num_hidden_layers=2, num_attention_heads=7,
            num_key_value_heads=7, vocab_size=83, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=130000.0))),
    "tinyllama_bf16": dict(
        model=LlamaForCausalLM, length=15, clip=2.4, scale=0.14, seed=33, dtype=torch.bfloat16, spelling=4,
        config=LlamaConfig(
            hidden_size=40, intermediate_size=27, num_hidden_layers=2, num_attention_heads=10,
            num_key_value_heads=2, vocab_size=101, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "groups": dict(
        model=LlamaForCausalLM, length=20, clip=1.8, scale=0.14, seed=34, toml=r"""
freeze = 'model\.layers\.0\.mlp\.(gate|up)_proj\.weight'
[[group]]
match = '(.*embed_tokens|lm_head)\.weight'
lr_factor = 0.1
weight_decay = 0.5
[[group]]
match = 'model\.layers\.1\.self_attn\.[kq]_proj\.weight'
lr_factor = 0.0
[[group]]
match = 'model\.layers\.1\..*'
lr_factor = 3.0
weight_decay = 0.0
[[group]]
match = '.*\.v_proj\.weight'
frozen = true
""",
        config=LlamaConfig(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=59, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=False)),
    "olmo2": dict(
        model=Olmo2ForCausalLM, length=21, clip=1.8, scale=0.15, seed=24,
        config=Olmo2Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=False)),
    "olmo2_wide": dict(
        model=Olmo2ForCausalLM, length=17, clip=2.3, scale=0.15, seed=25, spelling=4,
        config=Olmo2Config(
            hidden_size=20, intermediate_size=28, num_hidden_layers=3, num_attention_heads=5,
            num_key_value_heads=5, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-5,
            tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    "qwen3": dict(
        model=Qwen3ForCausalLM, length=19, clip=1.9, scale=0.15, seed=26,
        config=Qwen3Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, head_dim=14, vocab_size=67, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=True)),
    "qwen3_windows": dict(
        model=Qwen3ForCausalLM, length=23, clip=0.8, scale=0.15, seed=27, spelling=4,
        config=Qwen3Config(
            hidden_size=16, intermediate_size=28, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=6, vocab_size=61, max_position_embeddings=64, rms_norm_eps=1e-6,
            tie_word_embeddings=False, attention_bias=True, use_sliding_window=True, sliding_window=5,
            max_window_layers=2, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "gemma2": dict(
        model=Gemma2ForCausalLM, length=22, clip=1.9, scale=0.15, seed=28,
        config=Gemma2Config(
            hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=3,
            num_key_value_heads=1, head_dim=10, vocab_size=61, max_position_embeddings=64, sliding_window=6,
            query_pre_attn_scalar=7, attn_logit_softcapping=2.0, final_logit_softcapping=5.0)),
    "gemma2_untied": dict(
        model=Gemma2ForCausalLM, length=18, clip=1.6, scale=0.15, seed=29, spelling=4,
        config=Gemma2Config(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, vocab_size=67, max_position_embeddings=64, sliding_window=4,
            query_pre_attn_scalar=8, tie_word_embeddings=False)),
    "gemma3": dict(
        model=Gemma3ForCausalLM, length=23, clip=2.1, scale=0.15, seed=30,
        config=Gemma3TextConfig(
            hidden_size=24, intermediate_size=32, num_hidden_layers=3, num_attention_heads=3,
            num_key_value_heads=1, head_dim=10, vocab_size=61, max_position_embeddings=64, sliding_window=6,
            query_pre_attn_scalar=7, final_logit_softcapping=4.0,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0)))),
    "gemma3_pattern": dict(
        model=Gemma3ForCausalLM, length=18, clip=2.7, scale=0.15, seed=31, spelling=4,
        config=Gemma3TextConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2,
            num_key_value_heads=2, head_dim=8, vocab_size=59, max_position_embeddings=64, sliding_window=5,
            query_pre_attn_scalar=8, sliding_window_pattern=3)),
    "gemma3_vision": dict(
        model=Gemma3ForConditionalGeneration, length=23, clip=2.1, scale=0.15, seed=35, shard_size="24KB",
        text=MULTIMODAL_NAMES,
        config=Gemma3Config(
            tie_word_embeddings=False, mm_tokens_per_image=4, vision_config=small_vision(),
            text_config=Gemma3TextConfig(
                hidden_size=24, intermediate_size=36, num_hidden_layers=3, num_attention_heads=3,
                num_key_value_heads=1, head_dim=10, vocab_size=61, max_position_embeddings=64, sliding_window=6,
                query_pre_attn_scalar=7, tie_word_embeddings=False,
                layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                rope_parameters=dict(
                    full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                    sliding_attention=dict(rope_type="default", rope_theta=100.0))))),
    "gemma3_vision_bf16": dict(
        model=Gemma3ForConditionalGeneration, length=18, clip=2.7, scale=0.15, seed=36, dtype=torch.bfloat16,
        spelling=4, left_out=("num_attention_heads", "num_key_value_heads", "pad_token_id", "tie_word_embeddings"),
        text={"model.language_model.": "model.language_model."},
        config=Gemma3Config(
            mm_tokens_per_image=4, vision_config=small_vision(),
            text_config=Gemma3TextConfig(
                hidden_size=16, intermediate_size=28, num_hidden_layers=4, num_attention_heads=8,
                num_key_value_heads=4, head_dim=6, vocab_size=59, max_position_embeddings=64, sliding_window=5,
                query_pre_attn_scalar=8, sliding_window_pattern=3))),
}
