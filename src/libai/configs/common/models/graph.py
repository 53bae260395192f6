"""The step as an nn.Graph, compiled; graph.enabled=false runs op by op."""

from libai.config import LazyCall
from libai.models.utils.graph_base import GraphBase

graph = dict(
    enabled=True,
    debug=-1,  # -1 nothing, 0 stages, 1 modules, 2 ops, 3 the code of a step
    auto_parallel=dict(
        enabled=False,
        enable_auto_parallel_ignore_user_sbp_config=False,
        trunk_algo=True,
        sbp_collector=False,
    ),
    train_graph=LazyCall(GraphBase)(is_train=True),
    eval_graph=LazyCall(GraphBase)(is_train=False),
    global_mode=dict(enabled=False),
)
