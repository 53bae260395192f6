"""The MNIST project of LiBai's tutorial, end to end: samples a second with loaders, logs and evaluation, beside a plain
PyTorch program.

    python benchmarks/libai.py [--iterations 800] [--rounds 3] [--workers 4]

Ours is ``examples/libai_mnist`` as it stands: its config, its data set of single samples, its evaluation every 100
iterations and a log line every 10. The rival trains the same network on the same files with torch's DataLoader of as
many workers, eager steps, fused AdamW, clipped gradients, the same warm-up and cosine, and the same evaluations and log
lines. Its data set makes a sample by PIL and numpy, once; "the tutorial's data set" is the same program with the very
data set of the project. The last line is what the trainer adds to an iteration: its time without the step and without
getting the batch.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import in_turn, machine, parse
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "examples" / "libai_mnist"
# This file has the name of the package it measures: from here on only the package is found.
sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]
BATCH, TEST_BATCH, EVAL_PERIOD, LOG_PERIOD = 128, 32, 100, 10
RATE, WARMUP, ALPHA = 1e-4, 0.01, 0.01
OURS = "libai, examples/libai_mnist"


class PlainSamples(torch.utils.data.Dataset):
    """MNIST as PyTorch programs read it: a PIL picture of each sample, as a tensor."""

    def __init__(self, data: Any) -> None:
        self.pixels, self.labels = data.data.numpy(), data.targets.numpy()

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = Image.fromarray(self.pixels[index])
        return torch.from_numpy(np.array(picture)).unsqueeze(0).float().div_(255), int(self.labels[index])


class TutorialSamples(torch.utils.data.Dataset):
    """The data set of the project, as tuples."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        sample = self.dataset[index]
        return sample.inputs.tensor, sample.labels.tensor.long()


class Rival:
    """A training program in plain PyTorch."""

    def __init__(self, train: torch.utils.data.Dataset, test: torch.utils.data.Dataset, workers: int) -> None:
        self.train_loader = _loader(train, BATCH, workers, shuffle=True, drop_last=True)
        self.test_loader = _loader(test, TEST_BATCH, workers)

    def run(self, iterations: int, log: Any) -> float:
        torch.manual_seed(0)
        nn = torch.nn
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
        weights = [parameter for name, parameter in model.named_parameters() if name.endswith("weight")]
        groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=RATE, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, iterations))
        start = time.perf_counter()
        for step, (inputs, labels) in enumerate(_endless(self.train_loader)):
            if step == iterations:
                break
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            for group in groups:
                nn.utils.clip_grad_norm_(group["params"], 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            if (step + 1) % LOG_PERIOD == 0:
                print(f"iteration {step} loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.2e}", file=log)
            if (step + 1) % EVAL_PERIOD == 0:
                print(f"accuracy {self._evaluate(model):.2f}", file=log)
        return time.perf_counter() - start

    def _evaluate(self, model: torch.nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            right = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in self.test_loader)
        model.train()
        return 100.0 * right / len(self.test_loader.dataset)


class Ours:
    """The project of the tutorial, trained by ``libai.engine.DefaultTrainer``."""

    def __init__(self, workers: int, folder: str) -> None:
        self.workers, self.folder = workers, folder

    def run(self, iterations: int, log: Any) -> float:
        with tempfile.TemporaryDirectory(dir=self.folder) as output, contextlib.redirect_stdout(log):
            trainer = self._trainer(iterations, output)
            start = time.perf_counter()
            trainer.train()
            return time.perf_counter() - start

    def overhead(self, iterations: int, log: Any) -> list[float]:
        """Seconds of each iteration that go neither into the step nor into getting the batch: global tensors, numbers,
        rates, hooks, logs."""
        with tempfile.TemporaryDirectory(dir=self.folder) as output, contextlib.redirect_stdout(log):
            trainer = self._trainer(iterations, output, "train.evaluation.enabled=false")
            inner = trainer._trainer
            inner._batches = data = _Timed(inner._batches.__next__)
            inner.graph = step = _Timed(inner.graph, model=inner.graph.model)
            trainer.train()
        rounds = [later - earlier for earlier, later in zip(step.starts, step.starts[1:])]
        return [whole - used - read for whole, used, read in zip(rounds, step.seconds, data.seconds[1:])][
            1:
        ]  # the first one writes the plan

    def _trainer(self, iterations: int, output: str, *more: str) -> Any:
        from libai.config import LazyConfig
        from libai.config.arguments import default_argument_parser
        from libai.engine import DefaultTrainer, default_setup

        arguments = default_argument_parser().parse_args(["--config-file", str(PROJECT / "configs" / "config.py")])
        cfg = LazyConfig.load(arguments.config_file)
        overrides = [f"train.output_dir={output}", f"train.train_iter={iterations}", "train.train_epoch=0", f"dataloader.train.num_workers={self.workers}",
                     f"dataloader.test.0.num_workers={self.workers}", "train.checkpointer.period=1000000", *more]  # fmt: skip
        cfg = LazyConfig.apply_overrides(cfg, overrides)
        setup = default_setup(cfg, arguments)
        return DefaultTrainer(cfg if setup is None else setup)


class _Timed:
    """A function, or an iterator, and how long each call of it took."""

    def __init__(self, call: Any, **attributes: Any) -> None:
        self._call = call
        self.starts: list[float] = []
        self.seconds: list[float] = []
        vars(self).update(attributes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.starts.append(time.perf_counter())
        result = self._call(*args, **kwargs)
        self.seconds.append(time.perf_counter() - self.starts[-1])
        return result

    __next__ = __call__

    def plan_step(self, *args: Any) -> Any:
        return self._call.plan_step(*args)


def _rate(step: int, iterations: int) -> float:
    warm = math.ceil(iterations * WARMUP)

    def cosine(t: int) -> float:
        return (1 - ALPHA) * 0.5 * (1 + math.cos(math.pi * min(t, iterations) / iterations)) + ALPHA

    return 0.001 + (cosine(warm) - 0.001) * step / warm if step < warm else cosine(step)


def _loader(dataset: torch.utils.data.Dataset, batch: int, workers: int, **more: Any) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(dataset, batch, num_workers=workers, persistent_workers=workers > 0, **more)


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parse(parser, {"iterations": 4, "rounds": 1, "workers": 1})
    sys.path.insert(0, str(PROJECT))
    os.chdir(PROJECT)
    from dataset.dataset import MnistDataSet  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        train, test = MnistDataSet(folder, True), MnistDataSet(folder, False)
        contenders: dict[str, Any] = {
            OURS: Ours(arguments.workers, folder),
            "PyTorch, its own data set": Rival(PlainSamples(train.data), PlainSamples(test.data), arguments.workers),
            "PyTorch, the tutorial's data set": Rival(TutorialSamples(train), TutorialSamples(test), arguments.workers),
        }
        speeds: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(arguments.rounds + (not arguments.small)):
            for name, contender in in_turn(contenders, turn):
                with open(os.path.join(folder, "log"), "a") as log:
                    seconds = contender.run(arguments.iterations, log)
                if turn or arguments.small:
                    speeds[name].append(arguments.iterations * BATCH / seconds)
        with open(os.path.join(folder, "log"), "a") as log:
            overhead = sorted(Ours(0, folder).overhead(arguments.iterations, log))
    print(machine())
    print(
        f"\nMNIST, {arguments.iterations} iterations of {BATCH}, {arguments.workers} workers, {len(train)} + "
        f"{len(test)} pictures"
    )
    found = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"  {name:<34} {found[name]:9.0f} samples/s   ({min(values):.0f} to {max(values):.0f})")
    for name in contenders:
        if name != OURS:
            print(f"  ratio: {found[OURS] / found[name]:.2f} of {name}")
    median, late = (1e3 * overhead[int(share * len(overhead))] for share in (0.5, 0.95))
    print(
        f"  the trainer beside step and data, an iteration: {median:.2f} ms, 95 of 100 below {late:.2f} ms, with logs "
        f"{1e3 * statistics.mean(overhead):.2f} ms on the mean"
    )


if __name__ == "__main__":
    main()
