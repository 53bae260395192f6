"""The feed-forward part of a transformer layer."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from libai.layers.activation import build_activation
from libai.layers.laying import Init
from libai.layers.linear import Linear
from oneflow import nn


class MLP(nn.Module):
    """Linear, ``activation`` (GELU by erf), linear, dropout; tensor parallelism cuts the first by outputs and the
    second by inputs. The fusion flags change no number."""

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        output_dropout_prob: float = 0.0,
        init_method: Init = nn.init.xavier_normal_,
        output_layer_init_method: Init | None = None,
        bias_gelu_fusion: bool = False,
        bias_dropout_fusion: bool = False,
        *,
        layer_idx: int = 0,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.output_dropout_prob = output_dropout_prob
        self.bias_gelu_fusion, self.bias_dropout_fusion = bias_gelu_fusion, bias_dropout_fusion
        self.activation = build_activation(activation)
        self.dense_h_to_4h = Linear(
            hidden_size, ffn_hidden_size, parallel="col", init_method=init_method, layer_idx=layer_idx
        )
        self.dense_4h_to_h = Linear(
            ffn_hidden_size,
            hidden_size,
            parallel="row",
            init_method=output_layer_init_method or init_method,
            layer_idx=layer_idx,
        )

    def forward(self, hidden_states: Any) -> Any:
        return F.dropout(
            self.dense_4h_to_h(self.activation(self.dense_h_to_4h(hidden_states))),
            self.output_dropout_prob,
            self.training,
        )

    def extra_repr(self) -> str:
        return f"bias_gelu_fusion={self.bias_gelu_fusion}, bias_dropout_fusion={self.bias_dropout_fusion}, dropout={self.output_dropout_prob}"
