"""Training and inference of the CNN examples against plain PyTorch and ONNX Runtime.

One training step of ResNet-50 (batch 16, 224) and AlexNet (batch 32, 227) against eager PyTorch, NCHW and
channels_last, and with ``--compiled`` torch.compile, each in a process of its own, with its peak memory; ResNet-50 on
one picture against eager PyTorch and ONNX Runtime with the same weights; how long ResNet-50 takes from its definition
to its program and to a file, and from the start of a program to its tenth step. All take turns in one
run. ``python benchmarks/cnns.py [--rounds N] [--what
train|infer|compile|start] [--net resnet50|alexnet] [--compiled] [--small]``
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch_models
from apart import Apart
from jobs import cnn, cnn_step, resnet50_predict
from measure import alternate, machine, parse, report
from onnx_rival import running_file

import oneflow as flow

NETS = {"resnet50": 224, "alexnet": 227}
FORMATS = {"channels_last": torch.channels_last, "NCHW": torch.contiguous_format}


def train(name: str, batch: int, size: int, rounds: int, compiled: bool) -> None:
    threads = torch.get_num_threads()
    contenders = {"job": Apart(threads, cnn_step, name, batch, size)}
    for kind, memory_format in FORMATS.items():
        contenders[f"PyTorch eager {kind}"] = Apart(
            threads, torch_models.training_step, name, batch, size, memory_format
        )
    if compiled:
        contenders["torch.compile channels_last"] = Apart(
            threads, torch_models.training_step, name, batch, size, torch.channels_last, True
        )
    report(f"{name} training step, batch {batch}", alternate(contenders, 1, rounds), "job")
    peaks = {who: contender.close() for who, contender in contenders.items()}
    print(
        "  memory beyond what the imports take: "
        + ", ".join(f"{who} {peak / 2**20:.0f} MB" for who, peak in peaks.items())
    )


def picture_of(size: int) -> np.ndarray:
    return np.random.default_rng(0).random((1, 3, size, size), np.float32)


def by_job(size: int) -> Callable[[], object]:
    predict, picture = resnet50_predict(size), picture_of(size)
    return lambda: predict(picture).get()


def by_onnx(size: int) -> Callable[[], object]:
    """The job's own export, with as many threads."""
    predict, picture = resnet50_predict(size), picture_of(size)
    predict(picture).get()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet50.onnx")
        began = time.perf_counter()
        flow.onnx.export(predict, None, path)
        print(f"\nResNet-50 exported to ONNX in {time.perf_counter() - began:.2f} s", flush=True)
        return running_file(path, picture)


def by_eager(size: int) -> Callable[[], object]:
    model = torch_models.ResNet50().eval().to(memory_format=torch.channels_last)
    picture = torch.from_numpy(picture_of(size)).contiguous(memory_format=torch.channels_last)

    def eager() -> torch.Tensor:
        with torch.inference_mode():
            return model(picture).softmax(1)

    return eager


def infer(size: int, rounds: int, calls: int) -> None:
    ways = {"job": by_job, "ONNX Runtime": by_onnx, "PyTorch eager channels_last": by_eager}
    contenders = {who: Apart(torch.get_num_threads(), how, size) for who, how in ways.items()}
    report("ResNet-50 inference, one picture", alternate(dict(contenders), calls, rounds), "job")
    for contender in contenders.values():
        contender.close()


def compiling(batch: int, size: int) -> None:
    flow.clear_default_session()
    job = cnn("resnet50", batch, size)
    began = time.perf_counter()
    flow.plan(job, devices=1)
    print(f"\nResNet-50 traced and planned in {time.perf_counter() - began:.2f} s")
    began = time.perf_counter()
    job().get()
    print(f"  its first step, with compiling: {time.perf_counter() - began:.2f} s")


STARTS = {
    "job": "import jobs; step = jobs.cnn_step('resnet50', {batch}, {size})",
    "PyTorch eager channels_last": "import torch, torch_models; step = torch_models.training_step('resnet50', {batch}, {size}, torch.channels_last)",
}


def starting(batch: int, size: int, rounds: int) -> None:
    """From the start of a program to its tenth step, the interpreter and its imports included."""

    def ten_steps(who: str) -> Callable[[], object]:
        code = f"{STARTS[who].format(batch=batch, size=size)}\nfor _ in range(10): step()"
        return lambda: subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=True)

    job, eager = alternate({who: ten_steps(who) for who in STARTS}, 1, rounds)
    report(f"ResNet-50, batch {batch}, from the start to the tenth step", [job, eager], job.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--what", choices=["train", "infer", "compile", "start"])
    parser.add_argument("--net", choices=[*NETS])
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--resnet50", type=int, default=16, help="the batch of ResNet-50")
    parser.add_argument("--alexnet", type=int, default=32, help="the batch of AlexNet")
    parser.add_argument("--pixels", type=int, default=NETS["resnet50"], help="the size of ResNet-50's pictures")
    args = parse(parser, {"rounds": 1, "resnet50": 2, "alexnet": 1, "pixels": 64})
    print(machine())
    if args.what in (None, "train"):
        for name in [args.net] if args.net else NETS:
            train(
                name, getattr(args, name), args.pixels if name == "resnet50" else NETS[name], args.rounds, args.compiled
            )
    if args.what in (None, "infer"):
        infer(args.pixels, args.rounds, 1 if args.small else 20)
    if args.what in (None, "compile"):
        compiling(args.resnet50, args.pixels)
    if args.what in (None, "start"):
        starting(args.resnet50, args.pixels, args.rounds)


if __name__ == "__main__":
    main()
