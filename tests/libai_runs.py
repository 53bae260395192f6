"""A small run of libai, and the same in plain torch: what tests of the trainer share, alone and on ranks."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

import oneflow as flow
from libai.config import LazyCall, LazyConfig, get_config
from libai.data import DistTensorData, Instance, build_image_test_loader, build_image_train_loader
from libai.engine import DefaultTrainer
from libai.engine.seeding import seed_run
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.utils.data import Dataset

ITERATIONS, BATCH, SEED = 6, 16, 7
TRAIN, TEST = 80, 37


def points(count: int, which: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around four centres, and which centre."""
    random = np.random.RandomState(which)
    labels = random.randint(0, 4, count)
    centres = np.random.RandomState(3).randn(4, 8)
    return (centres[labels] + 0.5 * random.randn(count, 8)).astype(np.float32), labels


class Points(Dataset):
    """Those points as libai reads them."""

    def __init__(self, count: int, which: int, fails_at: int | None = None) -> None:
        self.x, self.y = points(count, which)
        self.fails_at = fails_at

    def __getitem__(self, index: int) -> Instance:
        if index == self.fails_at:
            raise ZeroDivisionError("this picture has no pixels")
        return Instance(
            inputs=DistTensorData(flow.tensor(self.x[index])),
            labels=DistTensorData(flow.tensor(self.y[index], dtype=flow.int), placement_idx=-1),
        )

    def __len__(self) -> int:
        return len(self.y)


class Net(nn.Module):
    """Three layers, as the tutorial's."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.stack = nn.Sequential(
            nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4)
        )
        self.loss_func = nn.CrossEntropyLoss()

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        logits = self.stack(inputs)
        return {"losses": self.loss_func(logits, labels)} if self.training else {"prediction_scores": logits}


def config(folder: str | Path, *overrides: str) -> DictConfig:
    """The config of the small run."""
    cfg = DictConfig({}, flags={"allow_objects": True})
    cfg.model = LazyCall(Net)(hidden=32)
    cfg.optim = get_config("common/optim.py").optim
    cfg.graph = get_config("common/models/graph.py").graph
    cfg.dataloader = OmegaConf.create()
    cfg.dataloader.train = LazyCall(build_image_train_loader)(
        dataset=[LazyCall(Points)(count=TRAIN, which=1)], num_workers=0
    )
    cfg.dataloader.test = [
        LazyCall(build_image_test_loader)(dataset=LazyCall(Points)(count=TEST, which=2), num_workers=0)
    ]
    cfg.train = dict(
        output_dir=str(folder), train_micro_batch_size=None, global_batch_size=BATCH, train_iter=ITERATIONS, warmup_ratio=0.3, seed=SEED,
        test_micro_batch_size=4, log_period=1, topk=(1,), evaluation=dict(enabled=True, eval_period=3), checkpointer=dict(period=0),
        scheduler=dict(_target_="libai.scheduler.WarmupCosineLR", warmup_factor=0.1, alpha=0.01, warmup_method="linear"),
    )  # fmt: skip
    cfg.optim.lr = 0.01
    return LazyConfig.apply_overrides(cfg, overrides)


def trainer(folder: str | Path, *overrides: str, resume: bool = False) -> DefaultTrainer:
    """The trainer of the small run, after what a program does first."""
    cfg = config(folder, *overrides)
    cfg.train.resume = resume
    dist.setup_dist_util(cfg.train.get("dist", {}))
    seed_run(SEED, dist.get_rank())
    return DefaultTrainer(cfg)


def losses(run: DefaultTrainer) -> list[float]:
    """The loss of each iteration; rank 0 has them."""
    return [value for value, _ in run.storage.history("total_loss").values()]


def weights(run: DefaultTrainer) -> dict[str, np.ndarray]:
    """The parameters, whole; all ranks come here."""
    return {name: value.numpy() for name, value in run.model.state_dict().items()}


def rate(step: int) -> float:
    """Warm-up over ceil(0.3 * 6) = 2 steps to half a cosine from 0.01 to 0.0001 over six."""
    cosine = lambda t: 0.01 * (0.99 * 0.5 * (1 + math.cos(math.pi * t / ITERATIONS)) + 0.01)  # noqa: E731
    return 0.001 + (cosine(2) - 0.001) * step / 2 if step < 2 else cosine(step)


def reference(order: list[list[int]]) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses, accuracies after iterations 3 and 6, and weights of the same run in plain torch. Weights and biases are
    clipped apart."""
    torch.manual_seed(SEED)
    stack = torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    )
    named = dict(stack.named_parameters())
    matrices = [value for name, value in named.items() if name.endswith("weight")]
    biases = [value for name, value in named.items() if name.endswith("bias")]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}], lr=0.01
    )
    (x, y), (test_x, test_y) = points(TRAIN, 1), points(TEST, 2)
    found, accuracies = [], []
    for step, batch in enumerate(order):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = torch.nn.functional.cross_entropy(stack(torch.tensor(x[batch])), torch.tensor(y[batch]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(matrices, 1.0)
        torch.nn.utils.clip_grad_norm_(biases, 1.0)
        optimizer.step()
        found.append(loss.item())
        if step + 1 in (3, ITERATIONS):
            with torch.no_grad():
                right = (stack(torch.tensor(test_x)).argmax(1) == torch.tensor(test_y)).sum().item()
            accuracies.append(100 * right / TEST)
    return found, accuracies, {f"stack.{name}": value.detach().numpy() for name, value in named.items()}


def sample_order() -> list[list[int]]:
    """The samples of each global batch, as the sampler of one rank gives them: its own tests say that this is the law
    for any number of ranks."""
    from libai.data.samplers import CyclicSampler

    batches = iter(CyclicSampler(Points(TRAIN, 1), BATCH, shuffle=True, seed=SEED, rank_buckets=False))
    return [next(batches) for _ in range(ITERATIONS)]


def metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of metrics.json."""
    return [json.loads(line) for line in Path(folder, "metrics.json").read_text().splitlines()]


def shared_folder() -> str:
    """A new folder that every rank knows."""
    return dist.broadcast_py_object(tempfile.mkdtemp(prefix="libai-") if dist.is_main_process() else None)
