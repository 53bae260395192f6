"""Makes a snapshot of ResNet50 from the weights of a torch program, to evaluate, to predict with or to go on from.

python3 resnet_from_torch.py resnet50.pth pretrained/snapshot

The file is a state dict, ``.pt``, ``.pth`` or ``.safetensors``, with the names that torch's ResNets have:
``layer1.0.conv1.weight``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

from models import MODELS, Options

import oneflow as flow
from oneflow.errors import CheckpointError

BLOCK = re.compile(r"Resnet-res(\d)_(\d)_branch(1|2a|2b|2c)(_bn)?-(\w+)")
# A convolution and the batch norm behind it.
BRANCHES = {
    "1": ("downsample.0", "downsample.1"),
    "2a": ("conv1", "bn1"),
    "2b": ("conv2", "bn2"),
    "2c": ("conv3", "bn3"),
}
ENDS = {"Resnet-conv1": "conv1", "Resnet-conv1_bn": "bn1", "Resnet-fc1001": "fc"}
PARTS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


def torch_key(variable: str) -> str:
    """The name that torch's ResNet-50 has for a variable of ours: "layer2.0.bn1.weight" for
    "Resnet-res3_0_branch2a_bn-gamma"."""
    block = BLOCK.fullmatch(variable)
    if block is None:
        layer, _, part = variable.rpartition("-")
        return f"{ENDS[layer]}.{PARTS.get(part, part)}"
    stage, number, branch, is_norm, part = block.groups()
    return f"layer{int(stage) - 1}.{number}.{BRANCHES[branch][is_norm is not None]}.{PARTS.get(part, part)}"


def make_job(num_classes: int) -> Callable[..., Any]:
    @flow.global_function(type="predict")
    def InferenceNet(images=flow.FixedTensorDef((1, 3, 224, 224))):
        return MODELS["resnet50"].logits(images, Options(num_classes))

    return InferenceNet


def convert(state: Any, snapshot: str, num_classes: int = 1000) -> None:
    """Writes the snapshot of a state dict or a file of one; what does not fit is an error, and then there is no
    snapshot."""
    job = make_job(num_classes)
    flow.checkpoint.from_torch(state, torch_key, job, cast=True)
    flow.train.CheckPoint().save(snapshot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the state dict")
    parser.add_argument("snapshot", help="the folder to write, for --model_load_dir")
    parser.add_argument("--num_classes", type=int, default=1000)
    args = parser.parse_args()
    try:
        convert(args.file, args.snapshot, args.num_classes)
    except CheckpointError as error:
        sys.exit(f"{args.file}: {error.reason}")
    print(f"Saved {args.snapshot}.")


if __name__ == "__main__":
    main()
