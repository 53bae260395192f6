"""Plans for a thousand devices that are not there, made by one process: of a GPT, pipeline, data and tensor parallel
with ZeRO; of ResNet-50 as a job, as a data-parallel graph, and with auto parallel."""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from graph_models import Block
from jobs import cnn
from measure import machine, parse
from torch import Tensor, nn

import flowvision
import oneflow as flow
from oneflow.nn.graph import GraphModule

COLUMN, ROW = ("qkv", "up", "tokens", "scores"), ("out", "down")


class Embed(nn.Module):
    def __init__(self, vocabulary: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))


class Head(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.norm(x))


def sbp_of(name: str) -> Any:
    """How a parameter lies along the axis for tensors: the first of two layers is split by its outputs, the second by
    its inputs."""
    path, _, kind = name.rpartition(".")
    if path.endswith(COLUMN):
        return flow.sbp.split(0)
    return flow.sbp.split(1) if path.endswith(ROW) and kind == "weight" else flow.sbp.broadcast


def lay(stage: nn.Module, place: Any) -> None:
    stage.to_global(place, (flow.sbp.broadcast, flow.sbp.broadcast))
    for name, tensor in stage.named_parameters():
        tensor.data = tensor.detach().to_global(sbp=(flow.sbp.broadcast, sbp_of(name)))


class Train(flow.nn.Graph):
    def __init__(self, stages: list[nn.Module], places: list[Any], micro_batches: int) -> None:
        super().__init__()
        self.model = nn.Sequential(*stages)
        for number, place in enumerate(places):
            self.model[number].to(GraphModule).set_stage(number, place)
        self.add_optimizer(flow.optim.AdamW(self.model.parameters(), lr=1e-4))
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.config.enable_zero(True, stage=2)

    def build(self, ids: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(self.model(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        return loss


def gpt(args: argparse.Namespace) -> tuple[Train, Any, Any]:
    """The graph and its inputs; in a planned world nothing of it has data."""
    pipeline, data, tensor = args.devices
    ranks = torch.arange(pipeline * data * tensor, device="cpu").view(pipeline, data, tensor)
    places = [flow.placement("cuda", of_stage.tolist()) for of_stage in ranks]
    parts: list[nn.Module] = [Block(args.width, args.heads, True) for _ in range(args.layers)]
    each = args.layers // pipeline
    stages = [parts[each * number : each * (number + 1)] for number in range(pipeline)]
    stages[0].insert(0, Embed(args.vocabulary, args.width, args.length))
    stages[-1].append(Head(args.vocabulary, args.width))
    modules: list[nn.Module] = [nn.Sequential(*stage) for stage in stages]
    for module, place in zip(modules, places):
        lay(module, place)
    graph = Train(modules, places, args.micro_batches)
    own = torch.empty(args.rows * args.micro_batches, args.length, dtype=torch.int64)
    batch = flow.sbp.split(0), flow.sbp.broadcast
    return graph, own.to_global(places[0], batch), own.to_global(places[-1], batch)


def plan_of_gpt(args: argparse.Namespace) -> None:
    title = f"GPT, {args.layers} layers, {args.width} wide, {args.micro_batches} micro-batches"
    print(f"\n{title}, on {' x '.join(map(str, args.devices))} devices", flush=True)
    pipeline, data, tensor = args.devices
    with flow.planned_world(pipeline * data * tensor), tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        graph, ids, labels = gpt(args)
        made = time.perf_counter()
        plan = flow.plan(graph, ids, labels)
        planned = time.perf_counter()
        plan.save(Path(folder) / "plan.html")
        saved = time.perf_counter()
    print(f"  model without data {made - start:.1f} s, plan {planned - made:.1f} s, with its page {saved - made:.1f} s")
    print(
        f"  {max(rank.peak_memory for rank in plan.ranks) / 2**20:,.1f} MiB a rank at most, {100 * plan.busy:.1f} % of "
        f"a step busy"
    )


class Classify(flow.nn.Graph):
    def __init__(self, model: nn.Module, is_auto: bool) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        self.config.enable_auto_parallel(is_auto)

    def build(self, images: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss


def plan_of_cnn(how: str, net: str, devices: int, pixels: int) -> None:
    """Two pictures a device."""
    batch = 2 * devices
    if how == "as a job":
        step, inputs = cnn(net, batch, pixels), ()
    else:
        step = Classify(getattr(flowvision.models, net)().to("meta"), how == "with auto parallel")
        inputs = (
            torch.empty(batch, 3, pixels, pixels, device="meta"),
            torch.empty(batch, dtype=torch.int64, device="meta"),
        )

    began, worked = time.perf_counter(), time.process_time()
    flow.plan(step, *inputs, devices=devices)
    print(
        f"  {how:<22} {time.perf_counter() - began:.1f} s, {time.process_time() - worked:.1f} s of processor time",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--devices", type=int, nargs=3, default=[8, 8, 16], help="for the pipeline, for data, for tensors"
    )
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=50304)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--micro_batches", type=int, default=32)
    parser.add_argument("--rows", type=int, default=2, help="of a micro-batch on each device for data")
    parser.add_argument(
        "--net", default="resnet50", help="the network of pictures: a name of examples/cnns and of flowvision"
    )
    parser.add_argument("--pixels", type=int, default=224)
    small = {
        "devices": [2, 2, 2],
        "layers": 2,
        "width": 32,
        "heads": 4,
        "vocabulary": 64,
        "length": 16,
        "micro_batches": 4,
        "net": "alexnet",
    }
    args = parse(parser, small)
    print(machine())
    plan_of_gpt(args)
    count = math.prod(args.devices)
    print(f"\n{args.net}, {2 * count} pictures of {args.pixels} x {args.pixels}, on {count} devices", flush=True)
    for how in ("as a job", "as a graph", "with auto parallel"):
        plan_of_cnn(how, args.net, count, args.pixels)


if __name__ == "__main__":
    main()
