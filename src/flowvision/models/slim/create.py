"""slim's networks by name."""

from __future__ import annotations

from typing import Any

from flowvision.models.slim import (
    classic,
    inception_resnet_v2,
    inception_v1_v2,
    inception_v3,
    inception_v4,
    mobilenet,
    nasnet,
    resnet,
)
from flowvision.models.slim.network import Description, SlimNetwork
from oneflow.engine.core.errors import ArgumentError, NameError_, nearest

_FAMILIES = (classic, inception_v1_v2, inception_v3, inception_v4, inception_resnet_v2, resnet, mobilenet, nasnet)
NETWORKS: dict[str, Description] = {
    name: description for family in _FAMILIES for name, description in family.NETWORKS.items()
}
ALIASES = classic.ALIASES


def list_models() -> list[str]:
    """The names that :func:`create_model` takes; vgg_d and vgg_e are further names of vgg_16 and vgg_19."""
    return list(NETWORKS)


def create_model(
    name: str,
    num_classes: int | None = 1000,
    is_training: bool = True,
    image_size: int | None = None,
    in_channels: int = 3,
    **options: Any,
) -> SlimNetwork:
    """A network of slim's, with variables drawn by slim's initializers on torch's default device.

    ``is_training`` is the mode that the module is in; nasnet and pnasnet have an auxiliary classifier only if it is
    True here. ``image_size`` is the size of the pictures where variables depend on it: the full connections of lenet
    and cifarnet, auxiliary classifiers; None takes slim's own. ``options`` are those of the network, such as
    ``dropout_keep_prob``, ``depth_multiplier``, ``global_pool``, ``output_stride`` and ``create_aux_logits``.
    """
    known = ALIASES.get(name, name)
    if known not in NETWORKS:
        raise NameError_(
            f"slim has no network {name!r}.{nearest(name, [*NETWORKS, *ALIASES])} list_models() has them all"
        )
    if num_classes is not None and num_classes < 0:
        raise ArgumentError(f"num_classes is a number of classes, or None or 0 for features; got {num_classes}")
    description = NETWORKS[known]
    return SlimNetwork(
        known, description, num_classes or None, is_training, image_size or description.image_size, in_channels, options
    )
