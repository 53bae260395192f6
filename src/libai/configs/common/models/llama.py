"""Llama of 12 layers."""

from omegaconf import DictConfig

from libai.config import LazyCall
from libai.models import LlamaForCausalLM, LlamaModel

cfg = DictConfig(
    dict(
        hidden_layers=12,
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=None,  # hidden_size / num_attention_heads
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        rope_scaling=None,
        attention_dropout=0.0,
        attention_bias=False,
        mlp_bias=False,
        tie_word_embeddings=False,
        initializer_range=0.02,
        use_scaled_init_for_output_weights=True,
        amp_enabled=False,
    )
)

llama_model = LazyCall(LlamaModel)(cfg=cfg)
pretrain_model = LazyCall(LlamaForCausalLM)(cfg=cfg)
