"""Layers whose weights are global tensors: cut, or whole, as ``train.dist`` says."""

from libai.layers.activation import build_activation
from libai.layers.attention import MultiheadAttention
from libai.layers.conv import Conv1D
from libai.layers.cross_entropy import ParallelCrossEntropyLoss
from libai.layers.droppath import DropPath, drop_path
from libai.layers.embedding import Embedding, PatchEmbedding, SinePositionalEmbedding, VocabEmbedding
from libai.layers.layer_norm import LayerNorm, RMSLayerNorm
from libai.layers.linear import Linear, Linear1D
from libai.layers.lm_logits import LMLogits
from libai.layers.mlp import MLP
from libai.layers.transformer_layer import TransformerLayer

__all__ = [
    "MLP",
    "Conv1D",
    "DropPath",
    "Embedding",
    "LMLogits",
    "LayerNorm",
    "Linear",
    "Linear1D",
    "MultiheadAttention",
    "ParallelCrossEntropyLoss",
    "PatchEmbedding",
    "RMSLayerNorm",
    "SinePositionalEmbedding",
    "TransformerLayer",
    "VocabEmbedding",
    "build_activation",
    "drop_path",
]
