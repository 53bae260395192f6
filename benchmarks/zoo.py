"""Networks of the zoo: a training step in an ``nn.Graph`` against the same module in eager PyTorch, inference against
ONNX Runtime, and transforms.

The rival of a step is eager PyTorch as a good engineer writes it: a fused optimizer, gradients set to None, both
layouts, of which the better counts; the graph has channels_last. Each has a process of its own, all take turns.
Inference has one picture; the module, a graph of it, and its export to ONNX. Transforms (RandomResizedCrop, flip,
ToTensor, Normalize) are measured per picture against the same in PIL and numpy. ``python benchmarks/zoo.py [--only
NAME] [--what train|infer] [--rounds N] [--calls N] [--compile] [--small]``
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from apart import Apart
from measure import alternate, machine, parse, report
from onnx_rival import by_onnx_runtime
from PIL import Image

import oneflow as flow

# Title: whether it is slim's, the size of its pictures, the batch.
NETWORKS = {
    "slim resnet_v1_50": (True, "resnet_v1_50", 224, 8),
    "slim inception_v3": (True, "inception_v3", 299, 4),
    "slim mobilenet_v2": (True, "mobilenet_v2", 224, 16),
    "slim vgg_16": (True, "vgg_16", 224, 4),
    "resnet50": (False, "resnet50", 224, 8),
    "mobilenet_v2": (False, "mobilenet_v2", 224, 16),
    "efficientnet_b0": (False, "efficientnet_b0", 224, 16),
    "swin_t": (False, "swin_t", 224, 8),
    "convnext_tiny": (False, "convnext_tiny", 224, 8),
}
PICTURES = 10  # calls of inference for each step of a round
SMALL = {"slim mobilenet_v2": (True, "mobilenet_v2_035", 33, 2), "swin_t": (False, "swin_t", 32, 2)}


class Scores(torch.nn.Module):
    """A network of slim's without its end points."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)[0]


def made(title: str, is_small: bool) -> tuple[torch.nn.Module, int, int]:
    """The network, the size of its pictures, and the batch."""
    from flowvision.models import ModelCreator, slim

    is_slim, name, size, batch = (SMALL if is_small else NETWORKS)[title]
    torch.manual_seed(0)
    return Scores(slim.create_model(name)) if is_slim else ModelCreator.create_model(name), size, batch


class TrainGraph(flow.nn.Graph):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))

    def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def training(
    title: str, is_small: bool, in_graph: bool, channels_last: bool, is_compiled: bool = False
) -> Callable[[], object]:
    model, size, batch = made(title, is_small)
    x, y = torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    if in_graph:
        graph = TrainGraph(model)
        return lambda: graph(x, y)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    run = torch.compile(model) if is_compiled else model

    def step() -> torch.Tensor:
        loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def inferring(title: str, is_small: bool, way: str) -> Callable[[], object]:
    model, size, _ = made(title, is_small)
    model.eval()
    x = torch.randn(1, 3, size, size)
    if way == "graph":
        graph = flow.nn.Graph.trace(model)
        return lambda: graph(x)
    if way == "ONNX Runtime":
        return by_onnx_runtime(model, x)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return model(x)

    return run


def compare_steps(title: str, args: argparse.Namespace) -> None:
    threads = torch.get_num_threads()
    contenders = {
        "nn.Graph": Apart(threads, training, title, args.small, True, True),
        "PyTorch eager": Apart(threads, training, title, args.small, False, False),
        "PyTorch eager channels_last": Apart(threads, training, title, args.small, False, True),
    }
    if args.compile:
        contenders["torch.compile channels_last"] = Apart(threads, training, title, args.small, False, True, True)
    report(
        f"{title}, training step, batch {(SMALL if args.small else NETWORKS)[title][3]}",
        alternate(dict(contenders), args.calls, args.rounds),
        "nn.Graph",
    )
    print(
        f"  memory: {', '.join(f'{who} {contender.close() / 2**20:.0f} MB' for who, contender in contenders.items())}"
    )


def compare_inference(title: str, args: argparse.Namespace) -> None:
    ways = {"nn.Graph": "graph", "PyTorch eager": "eager", "ONNX Runtime": "ONNX Runtime"}
    contenders = {who: Apart(torch.get_num_threads(), inferring, title, args.small, way) for who, way in ways.items()}
    report(f"{title}, inference, batch 1", alternate(dict(contenders), PICTURES * args.calls, args.rounds), "nn.Graph")
    for contender in contenders.values():
        contender.close()


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def by_hand(picture: Image.Image, size: int) -> np.ndarray:
    """The same four steps in PIL and numpy, as one writes them without a library."""
    width, height = picture.size
    for _ in range(10):
        area = random.uniform(0.08, 1.0) * width * height
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            break
    else:
        w, h = width, height
    left, top = random.randint(0, width - w), random.randint(0, height - h)
    picture = picture.crop((left, top, left + w, top + h)).resize((size, size), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(picture, np.float32).transpose(2, 0, 1) / 255
    return (pixels - np.array(MEAN, np.float32)[:, None, None]) / np.array(STD, np.float32)[:, None, None]


def compare_transforms(args: argparse.Namespace) -> None:
    from flowvision import transforms

    size, calls = (32, 2) if args.small else (224, 100)
    pixels = np.random.default_rng(0).integers(0, 256, (375, 500, 3), np.uint8)
    picture = Image.fromarray(pixels)
    steps = [
        transforms.RandomResizedCrop(size),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    ours = transforms.Compose(steps)
    timings = alternate(
        {"flowvision": lambda: ours(picture), "PIL and numpy": lambda: by_hand(picture, size)}, calls, args.rounds
    )
    report("RandomResizedCrop, flip, ToTensor, Normalize, a picture of 500 x 375", timings, "flowvision")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2, help="steps of a round")
    parser.add_argument("--only", default="", help="networks whose title begins so; 'transforms' for these alone")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="a training step also against torch.compile, which takes minutes to start",
    )
    parser.add_argument("--what", choices=["train", "infer"], help="only steps, or only inference; else both")
    args = parse(parser, {"rounds": 1, "calls": 1})
    print(machine())
    for title in SMALL if args.small else NETWORKS:
        if title.startswith(args.only) and args.what != "infer":
            compare_steps(title, args)
        if title.startswith(args.only) and args.what != "train":
            compare_inference(title, args)
    if "transforms".startswith(args.only):
        compare_transforms(args)


if __name__ == "__main__":
    main()
