"""Laws of the zoo on ranks: data parallel steps of its networks are those of one process, batch norm's statistics
included.

The reference is a loop of plain torch over the whole batch, which every rank runs for itself.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from global_rank import SIZE, S, spread
from graph_laws import close, copies, same, whole
from torch import Tensor, nn

import oneflow as flow
from flowvision.models import ModelCreator, slim
from oneflow.engine.global_tensor.placement import placement

ALL = placement("cpu", range(SIZE))


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    scores = model(x)
    return nn.functional.cross_entropy(
        scores[0] if isinstance(scores, tuple) else scores, y
    )  # slim's networks give their end points too


class Train(flow.nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.01))

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = loss_of(self.model, x, y)
        loss.backward()
        return loss


def data_parallel(make: Callable[[], nn.Module], size: int, dtype: torch.dtype = torch.float32) -> None:
    torch.manual_seed(0)
    alone = make().to(dtype)
    for module in alone.modules():
        for name in ("p", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model = copy.deepcopy(alone)
    x, y = torch.randn(4, 3, size, size, dtype=dtype), torch.tensor([0, 1, 2, 3])
    optimizer, losses = torch.optim.SGD(alone.parameters(), lr=0.01), []
    for _ in range(2):
        loss = loss_of(alone, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    copies(model)
    graph = Train(model)
    close([whole(graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))) for _ in range(2)], losses)
    same(model, alone)


def cheap(name: str, **options: Any) -> nn.Module:
    model = ModelCreator.create_model(name, num_classes=4, **options)
    if name in ("alexnet", "vgg11_bn"):  # their full connections are nearly all of their weights, and nothing new
        model.classifier = nn.Linear(model.classifier[0 if name == "vgg11_bn" else 1].in_features, 4)
    return model


# A member of each family that has no law of its own below: its options, and the size of its pictures. Small batches
# make much of rounding, so in float64.
FAMILIES: dict[str, tuple[dict[str, Any], int]] = {
    "alexnet": ({}, 64),
    "vgg11_bn": ({}, 32),
    "resnext50_32x4d": ({"layers": (1, 1, 1, 1)}, 32),
    "se_resnet50": ({"layers": (1, 1, 1, 1)}, 32),
    "squeezenet1_1": ({}, 32),
    "densenet121": ({"block_config": (2, 2, 2, 2)}, 32),
    "googlenet": ({"aux_logits": False}, 32),
    "inception_v3": ({"aux_logits": False}, 75),
    "mnasnet0_5": ({}, 32),
    "mobilenet_v2": ({}, 32),
    "mobilenet_v3_small": ({}, 32),
    "shufflenet_v2_x0_5": ({}, 32),
    "ghostnet": ({}, 32),
    "efficientnet_b0": ({"depth_mult": 0.1}, 32),
    "regnet_y_400mf": ({"depth": 6}, 32),
    "deit_tiny_distilled_patch16_224": ({"img_size": 32, "depth": 1}, 32),
    "mlp_mixer_s16_224": ({"img_size": 32, "num_blocks": 1}, 32),
    "gmlp_ti16_224": ({"img_size": 32, "num_blocks": 1}, 32),
    "resmlp_12_224": ({"img_size": 32, "depth": 1}, 32),
    "convnext_iso_small_224": ({"depth": 1}, 32),
    "poolformer_s12": ({"layers": (1, 1, 1, 1)}, 32),
}
# Every second family; with ``MATRIX_ALL=1`` every one.
for _name, (_options, _size) in list(FAMILIES.items())[:: 1 if os.environ.get("MATRIX_ALL") else 2]:
    globals()[f"law_{_name}"] = partial(data_parallel, partial(cheap, _name, **_options), _size, torch.float64)


def law_a_resnet() -> None:
    data_parallel(lambda: ModelCreator.create_model("resnet18", layers=(1, 1, 1, 1), num_classes=4), 32)


def law_a_vision_transformer() -> None:
    data_parallel(lambda: ModelCreator.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=4), 32)


def law_a_swin_transformer() -> None:
    data_parallel(
        lambda: ModelCreator.create_model("swin_t", depths=(1, 1), num_heads=(3, 6), num_classes=4, drop_path_rate=0.0),
        32,
    )


def law_a_convnext() -> None:
    """Its norms leave permuted memory to convolutions and to the pool. In float64 what a small batch makes of rounding
    is far below the tolerance."""
    small = {"depths": (1, 1), "dims": (8, 16), "num_classes": 4, "drop_path_rate": 0.0}
    data_parallel(lambda: ModelCreator.create_model("convnext_tiny_224", **small), 32, torch.float64)


def law_a_network_of_slim_with_batch_norm() -> None:
    data_parallel(
        lambda: slim.create_model("mobilenet_v1_025", num_classes=4, image_size=32, dropout_keep_prob=1.0),
        32,
        torch.float64,
    )
