"""Training and inference of the CNN examples against plain PyTorch and ONNX Runtime.

One training step of ResNet-50 (batch 16, 224) and AlexNet (batch 32, 227) against eager PyTorch, NCHW and channels_last, and with ``--compiled``
torch.compile, each in a process of its own, with its peak memory; ResNet-50 on one picture against eager PyTorch and ONNX Runtime with the same
weights; and how long ResNet-50 takes from its definition to its program and to a file. All take turns in one run.
``python benchmarks/cnns.py [--rounds N] [--what train|infer|compile] [--net resnet50|alexnet] [--compiled]``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch_models
from apart import Apart
from measure import alternate, machine, report

import oneflow as flow
from oneflow.job.function import default_session
from oneflow.plan import plan_job

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cnns"))
from models import MODELS, Options  # noqa: E402 - the examples are a folder, not a package

SIZES = {"resnet50": (16, 224), "alexnet": (32, 227)}
FORMATS = {"channels_last": torch.channels_last, "NCHW": torch.contiguous_format}


def train_job(name: str) -> Callable[[], object]:
    batch, size = SIZES[name]

    @flow.global_function(type="train")
    def train():
        images = flow.data.decode_random((3, size, size), flow.float32, batch, name="images")
        labels = flow.data.decode_random((), flow.int32, batch, flow.random_uniform_initializer(0, 1000, flow.int32), name="labels")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, MODELS[name].logits(images, Options(1000)))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.001]), momentum=0.9).minimize(loss)
        return loss

    return lambda: train().get()


def train(name: str, rounds: int, compiled: bool) -> None:
    batch, size = SIZES[name]
    threads = torch.get_num_threads()
    contenders = {"job": Apart(threads, train_job, name)}
    for kind, memory_format in FORMATS.items():
        contenders[f"PyTorch eager {kind}"] = Apart(threads, torch_models.training_step, name, batch, size, memory_format)
    if compiled:
        contenders["torch.compile channels_last"] = Apart(threads, torch_models.training_step, name, batch, size, torch.channels_last, True)
    report(f"{name} training step, batch {batch}", alternate(contenders, 1, rounds), "job")
    peaks = {who: contender.close() for who, contender in contenders.items()}
    print("  memory beyond what the imports take: " + ", ".join(f"{who} {peak / 2**20:.0f} MB" for who, peak in peaks.items()))


def infer(rounds: int) -> None:
    import onnxruntime

    flow.clear_default_session()

    @flow.global_function()
    def predict(images=flow.FixedTensorDef((1, 3, 224, 224))):
        return flow.nn.softmax(MODELS["resnet50"].logits(images, Options(1000)))

    picture = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
    predict(picture).get()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "resnet50.onnx"))
        began = time.perf_counter()
        flow.onnx.export(predict, None, path)
        print(f"\nResNet-50 exported to ONNX in {time.perf_counter() - began:.2f} s")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: picture}
    model = torch_models.ResNet50().eval().to(memory_format=torch.channels_last)
    tensor = torch.from_numpy(picture).contiguous(memory_format=torch.channels_last)

    def eager() -> torch.Tensor:
        with torch.inference_mode():
            return model(tensor).softmax(1)

    contenders = {"job": lambda: predict(picture).get(), "ONNX Runtime": lambda: session.run(None, given), "PyTorch eager channels_last": eager}
    report("ResNet-50 inference, one picture", alternate(contenders, 5, rounds), "job")


def compiling() -> None:
    flow.clear_default_session()
    step = train_job("resnet50")
    began = time.perf_counter()
    plan_job(default_session().jobs["train"], (1,))
    print(f"\nResNet-50 traced and planned in {time.perf_counter() - began:.2f} s")
    began = time.perf_counter()
    step()
    print(f"  its first step, with compiling: {time.perf_counter() - began:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--what", choices=["train", "infer", "compile"])
    parser.add_argument("--net", choices=[*SIZES])
    parser.add_argument("--compiled", action="store_true")
    args = parser.parse_args()
    print(machine())
    if args.what in (None, "train"):
        for name in [args.net] if args.net else SIZES:
            train(name, args.rounds, args.compiled)
    if args.what in (None, "infer"):
        infer(args.rounds)
    if args.what in (None, "compile"):
        compiling()


if __name__ == "__main__":
    main()
