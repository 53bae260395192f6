"""``flow.nn.utils``: clipping of gradients, weight normalisation, parameters as one vector, sequences of unequal length
(``rnn``)."""

from torch.nn.utils import clip_grad_value_, parameters_to_vector, remove_weight_norm, vector_to_parameters

from oneflow.compat.absent import absent
from oneflow.engine.global_tensor.clip import clip_grad_norm_
from oneflow.nn.utils import rnn
from oneflow.nn.utils._weight_norm import weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "remove_weight_norm",
    "rnn",
    "vector_to_parameters",
    "weight_norm",
]

__getattr__ = absent("oneflow.nn.utils", {}, lambda: globals())
