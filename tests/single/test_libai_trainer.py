"""The trainer of libai: order of construction and of hooks, what may be overridden, signals, and what is said where
something is wrong."""

from __future__ import annotations

import logging
import math
import signal
import time
from typing import Any

import pytest
from libai_runs import BATCH, ITERATIONS, Net, Points, config, losses, metrics, trainer, weights
from omegaconf import OmegaConf

import oneflow as flow
from libai import train
from libai.config import LazyCall, LazyConfig
from libai.config.tree import copied
from libai.data import DistTensorData, Instance, build_image_test_loader
from libai.engine import DefaultTrainer, default_setup, hooks
from libai.engine.trainer import HookBase, TrainerBase, concatenated
from libai.models.utils.recompute import recomputed_in
from libai.utils import distributed as dist
from libai.utils.checkpoint import Checkpointer
from libai.utils.events import EventStorage, EventWriter
from oneflow import nn

SHORT = ("train.train_iter=2", "train.evaluation.enabled=false")


@pytest.fixture(autouse=True)
def one_rank():
    dist.setup_dist_util({})


class Ones(TrainerBase):
    """Counts, and puts a number."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.fails_at = fails_at

    def run_step(self) -> None:
        if self.iter == self.fails_at:
            raise ZeroDivisionError("in the step")
        self.write_metrics({"losses": flow.tensor(float(self.iter)), "accuracy": flow.tensor([1.0, 2.0])}, 0.5)


class Notes(HookBase):
    def __init__(self, name: str, notes: list[Any]) -> None:
        self.name, self.notes = name, notes

    def before_train(self) -> None:
        self.notes.append((self.name, "before_train"))

    def after_train(self) -> None:
        self.notes.append((self.name, "after_train", self.trainer.iter))

    def before_step(self) -> None:
        self.notes.append((self.name, "before_step", self.trainer.iter))

    def after_step(self) -> None:
        self.notes.append((self.name, "after_step", self.trainer.storage.iter))


def test_hooks_are_called_in_order_around_every_step():
    notes: list[Any] = []
    run = Ones()
    run.register_hooks([Notes("a", notes), None, Notes("b", notes)])
    run.train(3, 5)
    assert [note[1:] for note in notes if note[0] == "a"] == [
        ("before_train",), ("before_step", 3), ("after_step", 3), ("before_step", 4), ("after_step", 4), ("after_train", 5),
    ]  # fmt: skip
    assert [note[0] for note in notes] == ["a", "b"] * 6
    assert (
        run.storage.history("total_loss").values() == [(3.0, 3), (4.0, 4)]
        and run.storage.history("accuracy").latest() == 3.0
    )


def test_after_train_runs_after_an_error_too():
    notes: list[Any] = []
    run = Ones(fails_at=1)
    run.register_hooks([Notes("a", notes)])
    with pytest.raises(ZeroDivisionError):
        run.train(0, 5)
    assert notes[-1] == ("a", "after_train", 1)
    with pytest.raises(TypeError, match="a hook is a libai.engine.hooks.HookBase, got int"):
        run.register_hooks([3])
    with pytest.raises(NotImplementedError, match="has to define run_step"):
        TrainerBase().run_step()


def test_callbacks_and_the_timer():
    said: list[Any] = []
    run = Ones()
    run.register_hooks(
        [
            hooks.IterationTimer(warmup_iter=3),
            hooks.CallbackHook(before_train=lambda t: said.append("begin"), after_step=lambda t: said.append(t.iter)),
        ]
    )
    run.train(0, 5)
    assert said == ["begin", 0, 1, 2, 3, 4] and [at for _, at in run.storage.history("time").values()] == [2, 3, 4]


def test_evaluation_and_the_best(tmp_path):
    values = iter([10.0, math.nan, 30.0, 20.0, 30.0])
    run = Ones()
    model = nn.Linear(1, 1).to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)
    best = hooks.BestCheckpointer(2, Checkpointer(model, str(tmp_path)), "group/Acc", mode="max")
    evaluation = hooks.EvalHook(2, lambda: {"group": {"Acc": next(values)}})
    run.register_hooks([evaluation, best])
    run.train(0, 10)
    assert (
        run.storage.history("group/Acc").values()[0] == (10.0, 1)
        and len(run.storage.history("group/Acc").values()) == 5
    )
    assert (best.best, best.best_iter) == (30.0, 5) and evaluation.results == {"group": {"Acc": 30.0}}
    assert flow.load(tmp_path / "model_best" / "trainer")["iteration"] == 5
    again = hooks.BestCheckpointer(2, Checkpointer(model), "group/Acc")
    again.load_state_dict(best.state_dict())
    assert again.best == 30.0
    other = hooks.BestCheckpointer(2, Checkpointer(model), "loss", mode="min")
    other.load_state_dict(best.state_dict())
    assert other.best is None, "another metric begins anew"
    first = hooks.BestCheckpointer(1, Checkpointer(model, str(tmp_path)), "PPL", mode="min", file_prefix="model_first")
    several = Ones()
    several.register_hooks(
        [hooks.EvalHook(1, lambda: {"Text": {"lm_PPL": 1.0, "PPL": 5.0 - several.iter}, "Text_2": {"PPL": 0.0}}), first]
    )
    several.train(0, 3)
    assert first.best == 2.0, "a metric without the name of a data set is the first one's"
    with pytest.raises(ValueError, match="Mode 'best' to BestCheckpointer is unknown"):
        hooks.BestCheckpointer(1, Checkpointer(model), "x", mode="best")


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ({"a": "text"}, "nested dict of float. Got 'a' of str: 'text'"),
        ([1], "a dictionary of numbers by name, got list"),
    ],
)
def test_results_of_an_evaluation_are_numbers(results, message):
    run = Ones()
    run.register_hooks([hooks.EvalHook(1, lambda: results)])
    with pytest.raises((ValueError, TypeError), match=message):
        run.train(0, 2)


def test_writers_write_every_period_at_the_end_and_after_the_last_evaluation():
    class Writer(EventWriter):
        written: list[Any] = []

        def write(self) -> None:
            self.written.append(run.storage.iter)

        def close(self) -> None:
            self.written.append("closed")

    run = Ones()
    run.register_hooks([hooks.PeriodicWriter([Writer()], period=2)])
    run.train(0, 5)
    assert Writer.written == [1, 3, 4, 5, "closed"]
    with pytest.raises(TypeError, match="a writer is a libai.utils.events.EventWriter, got int"):
        hooks.PeriodicWriter([3])


def test_the_rate_that_is_shown_is_of_the_largest_group():
    groups = [{"params": [1], "lr": 0.1}, {"params": [2, 3], "lr": 0.2}]
    optimizer = type("Optimizer", (), {"param_groups": groups})
    assert hooks.LRScheduler.get_best_param_group_id(optimizer) == 1
    optimizer.param_groups = [{"params": [1], "lr": 0.1}, {"params": [2], "lr": 0.3}, {"params": [3], "lr": 0.3}]
    assert hooks.LRScheduler.get_best_param_group_id(optimizer) == 1


# ------------------------------------------------------------------------------------------------------ DefaultTrainer


def test_every_part_can_be_overridden_and_is_built_in_order(tmp_path):
    order: list[str] = []
    parts = (
        "build_train_loader",
        "build_test_loader",
        "auto_scale_hyperparams",
        "build_model",
        "build_optimizer",
        "build_lr_scheduler",
        "build_graph",
        "build_evaluator",
        "test",
    )

    def noted(name: str) -> Any:
        def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
            order.append(name)
            return getattr(DefaultTrainer, name).__func__(cls, *args, **kwargs)

        return classmethod(call)

    def noted_method(name: str) -> Any:
        def call(self: Any, *args: Any) -> Any:
            order.append(name)
            return getattr(DefaultTrainer, name)(self, *args)

        return call

    mine = type(
        "Mine",
        (DefaultTrainer,),
        {
            **{name: noted(name) for name in parts},
            **{name: noted_method(name) for name in ("resume_or_load", "build_hooks", "build_writers")},
        },
    )
    given = config(tmp_path, "train.train_iter=1")
    before = OmegaConf.to_yaml(copied(given).train)
    run = mine(given)
    built = [
        "build_train_loader",
        "build_test_loader",
        "auto_scale_hyperparams",
        "build_model",
        "build_optimizer",
        "build_lr_scheduler",
        "build_graph",
        "build_graph",
    ]
    assert order == [*built, "resume_or_load", "build_hooks", "build_writers"]
    run.train()
    assert order[11:] == ["test", "build_evaluator"]
    assert OmegaConf.to_yaml(copied(given).train) == before, "the config that was given is not written to"
    assert run.cfg.train.global_batch_size == BATCH and run.cfg.train.scheduler.max_iter == 1


def test_epochs_warm_up_milestones_and_periods_are_worked_out(tmp_path):
    given = config(
        tmp_path, "train.train_iter=0", "train.train_epoch=3", "train.warmup_ratio=0.1", "train.evaluation.eval_after_n_epoch=2", "train.checkpointer.save_model_after_n_epoch=1",
    )  # fmt: skip
    given.train.scheduler = {
        "_target_": "libai.scheduler.WarmupMultiStepLR",
        "warmup_factor": 0.1,
        "milestones": [0.5, 0.9],
    }
    run = DefaultTrainer(given)
    cfg = run.cfg.train
    assert (cfg.train_iter, cfg.warmup_iter, cfg.samples) == (15, 2, 240)  # 80 samples in batches of 16
    assert cfg.scheduler.milestones == [7, 13] and cfg.evaluation.eval_period == 10 and cfg.checkpointer.period == 5
    for hook in run._hooks:
        hook.after_train() if isinstance(hook, hooks.PeriodicWriter) else None


def test_without_a_graph_an_iteration_is_a_micro_batch(tmp_path):
    run = trainer(tmp_path, "graph.enabled=false", "train.num_accumulation_steps=4", "train.train_iter=3")
    run.train()
    assert run.max_iter == 12 and len(losses(run)) == 12
    assert run.storage.samples == 48, "samples are counted once"
    assert [line["iteration"] for line in metrics(tmp_path) if "Acc@1" in line] == [2, 5, 8, 12]


def test_accumulation_gives_the_same_run_in_a_graph_and_without(tmp_path):
    found = []
    for number, mode in enumerate(("true", "false")):
        given = config(
            tmp_path / str(number),
            f"graph.enabled={mode}",
            "train.num_accumulation_steps=2",
            "train.warmup_ratio=0",
            *SHORT,
        )
        given.train.scheduler = {"_target_": "libai.scheduler.WarmupExponentialLR", "warmup_factor": 0.0, "gamma": 1.0}
        flow.manual_seed(7)
        run = DefaultTrainer(given)
        run.train()
        found.append(weights(run))
    for name, value in found[0].items():
        assert abs(value - found[1][name]).max() < 2e-5, name


class Halves(nn.Module):
    """The network of the small run as two sequences."""

    def __init__(self) -> None:
        super().__init__()
        whole = Net()
        self.first, self.last, self.loss_func = whole.stack[:2], whole.stack[2:], whole.loss_func

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        return {"losses": self.loss_func(self.last(self.first(inputs)), labels)}


@pytest.mark.parametrize("mode", ["true", "false"])
def test_activations_are_computed_again_only_where_that_saves_memory(tmp_path, mode):
    assert recomputed_in(Net()) == [] and recomputed_in(Halves()) == ["first", "last"]
    found = []
    for again in ("false", "true"):
        given = config(
            tmp_path / again,
            f"graph.enabled={mode}",
            f"train.activation_checkpoint.enabled={again}",
            "train.evaluation.enabled=false",
            *SHORT,
        )
        given.model = LazyCall(Halves)()
        flow.manual_seed(7)
        run = DefaultTrainer(given)
        run.train()
        found.append(losses(run))
    assert found[0] == found[1]


def test_batches_are_put_together_field_by_field():
    one = Instance(x=DistTensorData(flow.zeros(2, 3), placement_idx=-1))
    joined = concatenated([one, Instance(x=DistTensorData(flow.ones(2, 3), placement_idx=-1))])
    assert joined.x.tensor.shape == (4, 3) and joined.x.placement_idx == -1 and joined.x.tensor[2:].min() == 1


def test_two_loaders_of_one_class_do_not_collide(tmp_path):
    given = config(tmp_path, *SHORT)
    given.dataloader.test.append(
        LazyCall(build_image_test_loader)(dataset=LazyCall(Points)(count=9, which=4), num_workers=0)
    )
    run = DefaultTrainer(given)
    results = run.test(run.cfg, run.test_loader, run.graph_eval)
    assert list(results) == ["Points", "Points_2"]
    with pytest.raises(ValueError, match="one evaluator for each loader, got 1 for 2"):
        run.test(run.cfg, run.test_loader, run.graph_eval, evaluator=run.build_evaluator(run.cfg))
    run.train()


def test_the_class_methods_take_a_config_that_nothing_has_completed(tmp_path):
    given = config(tmp_path)
    model = DefaultTrainer.build_model(given)
    graph = DefaultTrainer.build_graph(given, model, is_train=False)
    results = DefaultTrainer.test(given, DefaultTrainer.build_test_loader(given), graph)
    assert set(results) == {"Acc@1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cfg: cfg.pop("optim"), "has no 'optim'"),
        (lambda cfg: cfg.dataloader.pop("train"), "dataloader has no 'train'"),
        (lambda cfg: setattr(cfg.dataloader, "test", cfg.dataloader.test[0]), "dataloader.test is a list, also of one loader.*got DictConfig"),
        (lambda cfg: cfg.dataloader.train.update(dataset=[]), "dataset is a data set or a list of one or more, got an empty list"),
        (lambda cfg: cfg.train.update(train_iter=0), "train.train_iter=0 and train.train_epoch=0: there is nothing to train; raise one"),
        (lambda cfg: cfg.train.update(global_batch_size=None), "train_micro_batch_size and global_batch_size must be set either"),
        (lambda cfg: cfg.train.update(global_batch_size=96), "the data set has 80 samples, less than one global batch of 96"),
        (lambda cfg: cfg.update(model=LazyCall(dict)()), r"model describes a subclass of oneflow.nn.Module, .*got dict"),
        (lambda cfg: cfg.model.update(hiden=3), r"Error in call to target '.*Net' of 'model': .*Did you mean 'hidden'\?"),
        (lambda cfg: cfg.update(train={**cfg.train, "load_weight": "nowhere"}), "there is no checkpoint 'nowhere'"),
        (lambda cfg: cfg.update(train={**cfg.train, "zero_optimization": {"enabled": True}}, graph={"enabled": False}), "train.zero_optimization.enabled=true needs graph.enabled=true"),
        (lambda cfg: cfg.update(train={**cfg.train, "dist": {"tensor_parallel_size": 2}}), "train.dist.tensor_parallel_size=2, but the rank layout of this process has 1; call libai.utils.distributed.setup_dist_util"),
        (lambda cfg: cfg.train.scheduler.update(milestones=[2]), "milestones are parts of the run, from 0 on and below 1; got 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_config_is_said_before_anything_runs(tmp_path, change, message):
    given = config(tmp_path)
    change(given)
    with pytest.raises(Exception, match=message):  # noqa: B017  kinds differ; each is one message
        DefaultTrainer(given)


class NoLoss(Net):
    def forward(self, inputs: Any, labels: Any) -> Any:
        return {"scores": self.stack(inputs)}


class NoDict(Net):
    def forward(self, inputs: Any, labels: Any) -> Any:
        return self.stack(inputs).mean()


class OtherNames(Net):
    def forward(self, images: Any, labels: Any) -> Any:
        return super().forward(images, labels)


@pytest.mark.parametrize("mode", ["graph.enabled=true", "graph.enabled=false"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NoLoss, "forward of NoLoss returned scores in training, and none of them has 'loss' in its name"),
        (NoDict, "in training a model returns a dictionary such as .*forward of NoDict returned"),
        (OtherNames, "unexpected keyword argument 'inputs'"),
    ],
)
def test_a_model_that_does_not_fit_is_told_so(tmp_path, model, message, mode):
    given = config(tmp_path, *SHORT, mode)
    given.model = LazyCall(model)()
    with pytest.raises(TypeError, match=message):
        DefaultTrainer(given).train()


def test_a_model_in_eval_mode_is_not_trained(tmp_path):
    run = trainer(tmp_path, *SHORT)
    run.model.eval()
    with pytest.raises(AssertionError, match="model was changed to eval mode! Call model.train"):
        run.train()


def test_a_data_set_that_fails_in_a_worker_is_named_once(tmp_path, capfd):
    given = config(tmp_path, *SHORT, "dataloader.train.num_workers=1")
    given.dataloader.train.dataset[0].fails_at = 5
    given.train.train_iter = 5
    run = DefaultTrainer(given)
    with pytest.raises(
        ValueError, match="sample 5 of Points cannot be read: ZeroDivisionError: this picture has no pixels"
    ) as failed:
        run.train()
    assert "libai_runs.py" in str(failed.value)


@pytest.mark.parametrize(("number", "ending"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_saves_and_ends(tmp_path, number, ending):
    before = signal.getsignal(number)
    run = trainer(tmp_path, "train.evaluation.enabled=false")
    run.register_hooks([hooks.CallbackHook(before_step=lambda t: signal.raise_signal(number) if t.iter == 2 else None)])
    with pytest.raises(ending):
        run.train()
    assert (tmp_path / "last_checkpoint").read_text() == "model_0000002" and signal.getsignal(number) is before
    resumed = trainer(tmp_path, "train.evaluation.enabled=false", resume=True)
    resumed.train()
    whole = trainer(tmp_path / "whole", "train.evaluation.enabled=false")
    whole.train()
    assert losses(resumed) == losses(whole)[3:] and all(
        (weights(resumed)[name] == value).all() for name, value in weights(whole).items()
    )


def test_the_second_signal_ends_at_once(tmp_path):
    run = trainer(tmp_path, "train.evaluation.enabled=false")

    def twice(t: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    run.register_hooks([hooks.CallbackHook(before_step=twice)])
    with pytest.raises(KeyboardInterrupt):
        run.train()
    assert not (tmp_path / "last_checkpoint").exists()


class Dropping(Net):
    """Draws random numbers in training."""

    def forward(self, inputs: Any, labels: Any) -> Any:
        return super().forward(nn.functional.dropout(inputs, 0.5, self.training), labels)


@pytest.mark.parametrize("mode", ["graph.enabled=true", "graph.enabled=false"])
def test_random_numbers_of_a_resumed_run_are_those_it_would_have_drawn(tmp_path, mode):
    def made(folder: str, resume: bool = False) -> DefaultTrainer:
        given = config(tmp_path / folder, mode, "train.evaluation.enabled=false", "train.checkpointer.period=3")
        given.model = LazyCall(Dropping)()
        given.train.resume = resume
        flow.manual_seed(7)
        return DefaultTrainer(given)

    whole, part = made("whole"), made("part")
    whole.train()
    super(DefaultTrainer, part).train(0, 3)
    (tmp_path / "part" / "last_checkpoint").write_text("model_0000002")
    resumed = made("part", resume=True)
    resumed.train()
    assert losses(resumed) == losses(whole)[3:] and len(set(losses(whole))) == ITERATIONS


def test_setup_makes_the_folder_the_log_and_the_config_that_runs_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = config("out", *SHORT)
    default_setup(given, type("Args", (), {"resume": False, "config_file": "", "eval_only": False}))
    saved = LazyConfig.load("out/config.yaml")
    assert saved.derived.train.global_batch_size == BATCH and saved.derived.train.train_micro_batch_size == BATCH
    assert saved.train.train_micro_batch_size is None, "what was given stays as it was"
    assert "Full config saved to" in (tmp_path / "out" / "log.txt").read_text()
    again, once = DefaultTrainer(saved), DefaultTrainer(given)
    assert again.cfg.train.global_batch_size == BATCH and "derived" not in again.cfg
    again.train(), once.train()
    assert LazyConfig.load("out/config.yaml").derived.train.train_iter == 2
    for handler in logging.getLogger("libai").handlers:
        handler.close()


def test_an_iteration_costs_little_beside_step_and_data(tmp_path):
    """Not a measurement (benchmarks/libai.py is): that nothing grows with the iterations."""
    run = Ones()
    run.register_hooks([hooks.IterationTimer(), hooks.CallbackHook()])
    begin = time.perf_counter()
    run.train(0, 2000)
    assert time.perf_counter() - begin < 10
    assert isinstance(run.storage, EventStorage)


def test_a_run_of_a_graph_writes_its_plan_and_one_without_a_graph_none(tmp_path):
    trainer(tmp_path / "graph", *SHORT).train()
    page = (tmp_path / "graph" / "plan.html").read_text()
    assert "<html" in page and "stack.0.weight" in page
    trainer(tmp_path / "eager", "graph.enabled=false", *SHORT).train()
    assert not (tmp_path / "eager" / "plan.html").exists()


def test_a_plan_that_cannot_be_written_ends_no_run(tmp_path, caplog):
    (tmp_path / "plan.html").mkdir()
    run = trainer(tmp_path, *SHORT)
    with caplog.at_level(logging.WARNING, "libai"):
        run.train()
    assert run.iter == 2 and "the plan of the graph cannot be written to" in caplog.text


def test_a_program_that_was_stopped_by_ctrl_c_says_no_more_than_its_log(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "main", stopped)
    with pytest.raises(SystemExit) as end:
        train.run()
    assert end.value.code == 130 and capsys.readouterr().err == ""
