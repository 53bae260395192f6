"""T5 of 6 layers in the encoder and 6 in the decoder."""

from omegaconf import DictConfig

from libai.config import LazyCall
from libai.models import T5ForPreTraining, T5Model

cfg = DictConfig(
    dict(
        vocab_size=30522,
        hidden_size=768,
        hidden_layers=6,
        num_attention_heads=16,
        intermediate_size=1536,
        embedding_dropout_prob=0.1,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=512,
        initializer_range=0.02,
        layernorm_eps=1e-5,
        bias_gelu_fusion=False,
        bias_dropout_fusion=False,
        scale_mask_softmax_fusion=False,
        apply_query_key_layer_scaling=True,
        apply_residual_post_layernorm=False,
        amp_enabled=False,
    )
)

t5_model = LazyCall(T5Model)(cfg=cfg)
pretrain_model = LazyCall(T5ForPreTraining)(cfg=cfg)
