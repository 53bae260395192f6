"""What models share: the graph that trains or evaluates one, and first values of weights."""

from libai.models.utils.graph_base import GraphBase
from libai.models.utils.weight_init import init_method_normal, scaled_init_method_normal

__all__ = ["GraphBase", "init_method_normal", "scaled_init_method_normal"]
