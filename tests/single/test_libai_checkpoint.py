"""Checkpoints of libai: their folders and names, what is kept, formats of LiBai itself, and disks that are full."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from libai_runs import ITERATIONS, losses, metrics, reference, sample_order, trainer, weights

import oneflow as flow
from libai.utils import distributed as dist
from libai.utils.checkpoint import (
    Checkpointer,
    PeriodicCheckpointer,
    get_missing_parameters_message,
    get_unexpected_parameters_message,
)
from oneflow import nn
from oneflow.engine.core.errors import CheckpointError


@pytest.fixture(autouse=True)
def one_rank():
    dist.setup_dist_util({})


class Counter:
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def linear(fill: float) -> nn.Module:
    model = nn.Linear(2, 3)
    nn.init.constant_(model.weight, fill)
    nn.init.constant_(model.bias, fill)
    return model.to_global(flow.placement("cpu", [0]), flow.sbp.broadcast)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_has_a_folder_for_each_object(tmp_path):
    checkpointer = Checkpointer(linear(1), str(tmp_path), counter=Counter(5))
    assert not checkpointer.has_checkpoint() and checkpointer.get_checkpoint_file() == ""
    checkpointer.save("model_0000019", iteration=19, note={"a": 1})
    assert names(tmp_path) == ["last_checkpoint", "model_0000019"]
    assert names(tmp_path / "model_0000019") == ["counter", "model", "note", "trainer"]
    assert (tmp_path / "last_checkpoint").read_text() == "model_0000019"
    loaded, counter = linear(0), Counter()
    rest = Checkpointer(loaded, str(tmp_path), counter=counter).resume_or_load("", resume=True)
    assert counter.value == 5 and float(loaded.weight.detach().numpy().sum()) == 6 and rest["iter"] == 19
    assert flow.load(tmp_path / "model_0000019" / "model")["weight"].tolist() == [[1.0, 1.0]] * 3


def test_a_run_whose_weights_have_another_shape_is_not_resumed(tmp_path):
    Checkpointer(linear(1), str(tmp_path)).save("model_0000001")
    other = nn.Linear(2, 4)
    with pytest.raises(
        CheckpointError, match=r"'weight' is \(3, 2\) there and \(4, 2\) in the model.*make_vocab_size_divisible_by"
    ):
        Checkpointer(other, str(tmp_path)).resume_or_load("", resume=True)


def test_the_best_is_not_the_last(tmp_path):
    checkpointer = Checkpointer(linear(1), str(tmp_path))
    checkpointer.save("model_best")
    assert not checkpointer.has_checkpoint()
    checkpointer.save("model_best"), checkpointer.save("model_final")
    assert checkpointer.get_checkpoint_file() == str(tmp_path / "model_final") and names(tmp_path) == [
        "last_checkpoint",
        "model_best",
        "model_final",
    ]


def test_periods_and_what_is_kept(tmp_path):
    periodic = PeriodicCheckpointer(Checkpointer(linear(1), str(tmp_path)), period=2, max_iter=9, max_to_keep=2)
    for iteration in range(9):
        periodic.step(iteration)
    assert names(tmp_path) == ["last_checkpoint", "model_0000005", "model_0000007", "model_final"]
    (tmp_path / ".model_0000007.tmp").mkdir()
    resumed = PeriodicCheckpointer(Checkpointer(linear(1), str(tmp_path)), period=2, max_to_keep=2)
    resumed.adopt(before=8)
    resumed.step(9)
    assert names(tmp_path) == ["last_checkpoint", "model_0000007", "model_0000009", "model_final"], (
        "those of the process before count, and its rest is gone"
    )
    with pytest.raises(ValueError, match="max_to_keep is the number of checkpoints that stay, from 1 on"):
        PeriodicCheckpointer(Checkpointer(linear(1)), 1, max_to_keep=0)


def test_names_may_be_others(tmp_path):
    class Epochs(PeriodicCheckpointer):
        final_name = None

        def name_of(self, iteration: int) -> str:
            return f"epoch_{iteration}"

        def iteration_of(self, name: str) -> int | None:
            return int(name[6:]) if name.startswith("epoch_") else None

    periodic = Epochs(Checkpointer(linear(1), str(tmp_path)), period=1, max_iter=3, max_to_keep=1)
    for iteration in range(3):
        periodic.step(iteration)
    assert names(tmp_path) == ["epoch_2", "last_checkpoint"]


def test_weights_that_do_not_fit_are_named_and_left_out(tmp_path, caplog):
    state = {
        "module.weight": flow.ones(3, 2),
        "module.bias": flow.ones(7),
        "module.extra.weight": flow.ones(1),
        "module.extra.bias": flow.ones(1),
    }
    flow.save(state, tmp_path / "saved" / "model")
    model = linear(0)
    Checkpointer(model).load(str(tmp_path / "saved"))
    assert (
        model.weight.detach().numpy().tolist() == [[1.0, 1.0]] * 3 and model.bias.detach().numpy().tolist() == [0.0] * 3
    )
    assert get_missing_parameters_message(["a.0.weight", "a.0.bias", "b"]) == (
        "Some model parameters or buffers are not found in the checkpoint:\n  a.0.{weight, bias}\n  b"
    )
    assert (
        get_unexpected_parameters_message(["x"])
        == "The checkpoint state_dict contains keys that are not used by the model:\n  x"
    )


def test_a_folder_of_weights_alone_is_loaded_too(tmp_path):
    flow.save(OrderedDict(weight=flow.full((3, 2), 4.0), bias=flow.zeros(3)), tmp_path / "weights")
    model = linear(0)
    assert Checkpointer(model).load(str(tmp_path / "weights"))["iter"] == 0
    assert model.weight.detach().numpy().max() == 4


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "model_0000018",
            r"there is no checkpoint '.*model_0000018': train.load_weight is the folder of one. Did you mean 'model_0000019'\?",
        ),
        ("nothing", r"'.*nothing' is no checkpoint: it has no folder 'model', but nothing"),
        ("other", "has no weight of Linear: it has x"),
    ],
)
def test_what_is_no_checkpoint_is_named(tmp_path, path, message):
    Checkpointer(linear(1), str(tmp_path)).save("model_0000019")
    (tmp_path / "nothing").mkdir()
    flow.save({"x": flow.ones(1)}, tmp_path / "other" / "model")
    with pytest.raises(AssertionError, match=message):
        Checkpointer(linear(0)).load(str(tmp_path / path))


def test_no_path_is_no_checkpoint():
    assert Checkpointer(linear(0)).load("") == {}
    with pytest.raises(ValueError, match=r"counter=int cannot be saved: it needs state_dict\(\)"):
        Checkpointer(linear(0), counter=3)


def test_saving_to_nowhere(tmp_path):
    Checkpointer(linear(1)).save("x")
    Checkpointer(linear(1), str(tmp_path), save_to_disk=False).save("x")
    assert names(tmp_path) == []


# ----------------------------------------------------------------------------------------------------- runs and formats


def test_a_run_is_that_of_plain_torch_and_leaves_its_files(tmp_path):
    run = trainer(tmp_path, "train.checkpointer={period:2,max_to_keep:1}")
    results = run.train()
    wanted, accuracies, values = reference(sample_order())
    np.testing.assert_allclose(losses(run), wanted, rtol=1e-5)
    for name, value in weights(run).items():
        np.testing.assert_allclose(value, values[name], rtol=1e-4, atol=1e-6)
    assert results == {"Acc@1": pytest.approx(accuracies[1])}
    assert [line["Acc@1"] for line in metrics(tmp_path) if "Acc@1" in line] == pytest.approx(accuracies), (
        "the last evaluation is written too"
    )
    found = [name for name in names(tmp_path) if not name.startswith("events.out.tfevents")]
    assert found == [
        "config.yaml",
        "last_checkpoint",
        "metrics.json",
        "model_0000005",
        "model_best",
        "model_final",
        "plan.html",
    ]
    assert names(tmp_path / "model_final") == ["graph", "lr_scheduler", "model", "trainer"]
    state = flow.load(tmp_path / "model_final" / "graph")
    assert int(state["System-Train-TrainStep"]) == ITERATIONS and state["model.stack.0.weight-m"].shape == (32, 8)
    assert flow.load(tmp_path / "model_final" / "trainer")["consumed_samples"] == ITERATIONS * 16


@pytest.mark.parametrize("mode", ["graph.enabled=true", "graph.enabled=false"])
def test_a_checkpoint_in_the_format_of_libai_is_resumed(tmp_path, mode):
    """LiBai has no ``trainer``, and its graph has the weights once more; its eager optimizer nests the options and
    counts once for all."""
    whole = trainer(tmp_path / "whole", mode)
    whole.train()
    first = trainer(tmp_path / "part", mode, "train.checkpointer.period=4")
    super(type(first), first).train(0, 4)
    folder = tmp_path / "part" / "model_0000003"
    assert flow.load(folder / "trainer")["iteration"] == 3
    shutil.rmtree(folder / "trainer")
    if mode.endswith("true"):
        state = flow.load(folder / "graph")
        flow.save(
            {
                "model": flow.load(folder / "model"),
                **{name: value for name, value in state.items() if "Updates" not in name},
            },
            folder / "graph",
        )
    else:
        state = flow.load(folder / "optimizer")
        step = state["param_groups"][0]["step"]
        renamed = {
            i: {{"m": "exp_avg", "v": "exp_avg_sq"}[name]: value for name, value in states.items()}
            for i, states in state["state"].items()
        }
        groups = []
        for group in state["param_groups"]:
            options = {key: value for key, value in group.items() if key not in ("params", "step")}
            groups.append({"_options": options, "_enable_clip_grad": True, "params": group["params"]})
        flow.save({"state": {"step": step, **renamed}, "param_groups": groups}, folder / "optimizer")
    (tmp_path / "part" / "last_checkpoint").write_text("model_0000003")
    resumed = trainer(tmp_path / "part", mode, resume=True)
    assert resumed.start_iter == 4
    resumed.train()
    for name, value in weights(whole).items():
        np.testing.assert_array_equal(weights(resumed)[name], value, err_msg=name)


def test_a_checkpoint_of_the_other_mode_is_refused(tmp_path):
    first = trainer(tmp_path, "train.evaluation.enabled=false", "train.train_iter=1")
    first.train()
    with pytest.raises(
        ValueError,
        match="was saved with graph.enabled=true: it has 'graph' and no 'optimizer'. Resume with the same setting",
    ):
        trainer(tmp_path, "graph.enabled=false", "train.train_iter=3", resume=True)


def test_resuming_what_is_finished_asks_for_more_iterations(tmp_path):
    trainer(tmp_path, "train.train_iter=2").train()
    with pytest.raises(
        ValueError,
        match="model training has finished, the last checkpoint in .* is of iteration 1 of 2; raise train.train_iter",
    ):
        trainer(tmp_path, "train.train_iter=2", resume=True)
    longer = trainer(tmp_path, "train.train_iter=3", resume=True)
    assert longer.start_iter == 2
    longer.train()


def test_a_run_that_was_stopped_in_its_last_evaluation_has_that_left(tmp_path):
    run = trainer(tmp_path, "train.train_iter=2")
    super(type(run), run).train(0, 2)  # as far as the checkpoint, and the evaluation that is not noted yet
    again = trainer(tmp_path, "train.train_iter=2", resume=True)
    assert again.start_iter == again.max_iter == 2 and again.train()["Acc@1"] > 0


def test_an_evaluation_that_was_due_is_made_up_for(tmp_path):
    """The checkpoint of an iteration is written before its evaluation: a run that is killed between them evaluates when
    it is resumed."""
    trainer(tmp_path / "whole", "train.checkpointer.period=3").train()
    run = trainer(tmp_path / "part", "train.checkpointer.period=3")
    for hook in run._hooks:
        if type(hook).__name__ in ("EvalHook", "BestCheckpointer"):  # the process dies before these
            hook.after_step = lambda: None
    super(type(run), run).train(0, 3)
    (tmp_path / "part" / "last_checkpoint").write_text("model_0000002")
    resumed = trainer(tmp_path / "part", "train.checkpointer.period=3", resume=True)
    resumed.train()
    of = lambda folder: {line["iteration"]: line["Acc@1"] for line in metrics(tmp_path / folder) if "Acc@1" in line}  # noqa: E731
    assert of("part")[2] == of("whole")[2] and of("part")[6] == of("whole")[6]


def test_resuming_without_a_checkpoint_starts_from_the_beginning(tmp_path):
    run = trainer(tmp_path, "train.train_iter=1", resume=True)
    assert run.start_iter == 0
    run.train()


def test_a_last_checkpoint_that_is_gone_is_named(tmp_path):
    (tmp_path / "last_checkpoint").write_text("model_0000007")
    with pytest.raises(AssertionError, match="names 'model_0000007', and there is no such checkpoint"):
        trainer(tmp_path, resume=True)


def test_an_optimizer_of_other_parameters_is_refused(tmp_path):
    trainer(tmp_path, "graph.enabled=false", "train.train_iter=1", "train.evaluation.enabled=false").train()
    state = flow.load(tmp_path / "model_final" / "optimizer")
    state["param_groups"] = state["param_groups"][:1]
    flow.save(state, tmp_path / "model_final" / "optimizer")
    with pytest.raises(ValueError, match="the checkpoint's optimizer has 3 parameters, this one has 6"):
        trainer(tmp_path, "graph.enabled=false", "train.train_iter=2", "train.evaluation.enabled=false", resume=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_a_full_disk_leaves_the_checkpoints_that_were_there(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this container may not mount")
    try:
        checkpointer = Checkpointer(linear(1), str(disk))
        checkpointer.save("model_0000001", iteration=1)
        with pytest.raises(OSError, match="No space left"), open(disk / "filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(
            ValueError,
            match="checkpoint '.*model_0000003' was not written: .*No space left on device.*; 'model_0000001' is whole",
        ):
            checkpointer.save("model_0000003", iteration=3)
        assert names(disk) == [
            "filler",
            "last_checkpoint",
            "model_0000001",
        ] and checkpointer.get_checkpoint_file().endswith("model_0000001")
        loaded = linear(0)
        Checkpointer(loaded, str(disk)).resume_or_load("")
        assert loaded.weight.detach().numpy().min() == 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)
