"""The activations that layers take by number: ``flow.layers.dense(x, 64, activation=op_conf_util.kRelu)``."""

from __future__ import annotations

from oneflow.core.job.initializer_conf_pb2 import InitializerConf

__all__ = ["InitializerConf", "kNone", "kRelu", "kSigmoid", "kTanH"]

kNone = 0
kTanH = 1
kSigmoid = 2
kRelu = 3
