"""``TrainerBase.stop()``: the run ends after the iteration, completely, and can be resumed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from libai_runs import ITERATIONS, losses, metrics, trainer, weights

import oneflow as flow
from libai.engine import hooks
from libai.engine.trainer import HookBase, TrainerBase
from libai.utils import distributed as dist
from libai.utils.checkpoint import Checkpointer
from libai.utils.events import EventStorage
from oneflow import nn


@pytest.fixture(autouse=True)
def one_rank():
    dist.setup_dist_util({})


class Counter(TrainerBase):
    """A trainer whose steps only count."""

    steps = 0

    def run_step(self) -> None:
        self.steps += 1


class StopAt(HookBase):
    """Stops the trainer in ``method`` of iteration ``at``."""

    def __init__(self, at: int, method: str = "after_step") -> None:
        self._at, self._method = at, method

    def _stop(self, method: str) -> None:
        if method == self._method and self.trainer.iter == self._at:
            self.trainer.stop()

    def before_train(self) -> None:
        self._stop("before_train")

    def before_step(self) -> None:
        self._stop("before_step")

    def after_step(self) -> None:
        self._stop("after_step")

    def after_train(self) -> None:
        self._stop("after_train")


class Ends(HookBase):
    """Records (iter, max_iter) in ``after_train``."""

    seen: tuple[int, int] | None = None

    def after_train(self) -> None:
        self.seen = (self.trainer.iter, self.trainer.max_iter)


@pytest.mark.parametrize(
    ("at", "method", "steps"),
    [
        (3, "after_step", 4),
        (3, "before_step", 4),
        (0, "before_train", 0),
        (9, "after_step", 10),
        (10, "after_train", 10),
    ],
)
def test_the_run_ends_after_the_current_iteration(at, method, steps):
    run, ends = Counter(), Ends()
    run.register_hooks([StopAt(at, method), ends])
    run.train(0, 10)
    assert run.steps == steps and ends.seen == (steps, steps)


def linear() -> nn.Module:
    return nn.Linear(1, 1).to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)


def test_the_final_checkpoint_is_written_wherever_the_stopping_hook_is_registered(tmp_path):
    for number, order in enumerate((1, -1)):
        folder = tmp_path / str(number)
        periodic = hooks.PeriodicCheckpointer(Checkpointer(linear(), str(folder)), period=2)
        run = Counter()
        run.register_hooks([StopAt(4), periodic][::order])
        run.train(0, 10)
        assert (folder / "last_checkpoint").read_text() == "model_final"
        assert flow.load(folder / "model_final" / "trainer")["iteration"] == 4


def test_no_final_checkpoint_without_an_iteration(tmp_path):
    run = Counter()
    run.register_hooks(
        [StopAt(0, "before_train"), hooks.PeriodicCheckpointer(Checkpointer(linear(), str(tmp_path)), 2)]
    )
    run.train(0, 10)
    assert not (tmp_path / "model_final").exists()


@pytest.mark.parametrize("at", [2, 3])
def test_a_stopped_run_is_evaluated_once_at_its_end(tmp_path, at):
    evaluations: list[int] = []

    def evaluate() -> dict[str, float]:
        evaluations.append(run.iter)
        return {"Acc": 1.0}

    run = Counter()
    evaluation = hooks.EvalHook(4, evaluate)
    run.register_hooks([evaluation, StopAt(at)])
    run.train(0, 10)
    assert evaluations == [3], "after iteration 2 at the end of the run, after iteration 3 by the period alone"
    assert evaluation.state_dict() == {"evaluated": at + 1}


@pytest.mark.parametrize("mode", ["graph.enabled=true", "graph.enabled=false"])
def test_a_stopped_run_is_complete_and_resumes_where_it_stopped(tmp_path, mode, caplog):
    stopped = trainer(tmp_path / "part", mode)
    stopped.register_hooks([StopAt(3)])
    with caplog.at_level(logging.INFO, "libai"):
        results = stopped.train()
    assert len(losses(stopped)) == 4 and stopped.max_iter == 4 and set(results) == {"Acc@1"}
    assert "iteration: 4/" not in caplog.text, "no line for an iteration that did not run"
    assert (tmp_path / "part" / "last_checkpoint").read_text() == "model_final"
    state = flow.load(tmp_path / "part" / "model_final" / "trainer")
    assert state["iteration"] == 3 and state["evaluation"]["evaluated"] == 4
    assert [line["iteration"] for line in metrics(tmp_path / "part") if "Acc@1" in line] == [2, 4]

    resumed = trainer(tmp_path / "part", mode, resume=True)
    assert resumed.start_iter == 4
    resumed.train()
    whole = trainer(tmp_path / "whole", mode)
    whole.train()
    assert losses(resumed) == losses(whole)[4:] and len(losses(whole)) == ITERATIONS
    both: Any = (weights(resumed), weights(whole))
    assert all((both[0][name] == value).all() for name, value in both[1].items())


def test_the_latest_value_of_a_metric():
    storage = EventStorage(3)
    assert hooks.latest_metric(storage, "Acc") is None
    storage.put_scalars(**{"First/Acc": 1.0, "Second/Acc": 2.0, "First/lm_Acc": 3.0})
    assert hooks.latest_metric(storage, "Acc") == (1.0, 3), "without a prefix, that of the first data set"
    assert hooks.latest_metric(storage, "Second/Acc") == (2.0, 3)
    storage.iter = 4
    storage.put_scalar("Acc", 4.0)
    assert hooks.latest_metric(storage, "Acc") == (4.0, 4)
    storage.put_scalar("zero", 0.0)
    assert hooks.latest_metric(storage, "zero") == (0.0, 4)
