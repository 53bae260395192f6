"""Networks of FastNN by name, their loss, restoring, moving averages and workers' variables."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from fastnn import paisoar
from fastnn.errors import FlagError
from fastnn.flags import TABLE, Flags
from fastnn.losses import classification_loss, cross_entropy
from fastnn.models import model_factory, nets_factory
from fastnn.models.model_factory import arg_scopes_map, get_model_fn, models_map
from fastnn.moving_average import MovingAverage
from fastnn.optimizers import create
from fastnn.utils import cluster_utils, hooks_utils, misc_utils
from flowvision.models import slim


def test_every_network_of_slim_has_its_name():
    assert len(models_map) == 32 and set(models_map) == set(slim.list_models())
    assert nets_factory.get_network_fn is get_model_fn and nets_factory.networks_map is models_map


def test_a_network_function_takes_nhwc_pictures():
    network_fn = nets_factory.get_network_fn("lenet", num_classes=7, weight_decay=0.0, is_training=False)
    images = torch.randn(2, 28, 28, 3)
    logits, end_points = network_fn(images)
    assert network_fn.default_image_size == 28 and logits.shape == (2, 7)
    torch.testing.assert_close(
        logits, network_fn.module(images.permute(0, 3, 1, 2).contiguous())[0], rtol=1e-4, atol=1e-4
    )
    assert "Logits" in end_points


class Mine(torch.nn.Module):
    default_image_size = 4

    def __init__(self, num_classes, is_training, width=2):
        super().__init__()
        self.first = torch.nn.Linear(48, width)
        self.last = torch.nn.Linear(width, num_classes)
        self.train(is_training)

    def forward(self, images):
        assert images.shape[1:] == (4, 4, 3)
        return self.last(self.first(images.flatten(1)))


def test_a_network_of_ones_own(monkeypatch):
    monkeypatch.setitem(models_map, "mine", Mine)
    monkeypatch.setitem(arg_scopes_map, "mine", lambda weight_decay: {"width": int(weight_decay * 10)})
    network_fn = get_model_fn("mine", 3, weight_decay=0.5, is_training=True)
    logits, end_points = network_fn(torch.zeros(2, 4, 4, 3))
    assert (
        logits.shape == (2, 3)
        and end_points == {}
        and network_fn.module.first.out_features == 5
        and network_fn.module.training
    )
    squares = sum(p.detach().square().sum().item() for p in network_fn.module.parameters() if p.ndim > 1)
    assert network_fn.regularization_loss().item() == pytest.approx(0.25 * squares)
    assert get_model_fn("mine", 3, weight_decay=0.2).is_slim is False


def test_networks_that_there_are_not(monkeypatch):
    with pytest.raises(
        FlagError, match="--model_name=resnet_v1_5: there is no such network. Did you mean 'resnet_v1_50'"
    ):
        get_model_fn("resnet_v1_5", 10)
    monkeypatch.setitem(models_map, "mine", lambda num_classes, is_training: 7)
    with pytest.raises(FlagError, match=r"models_map\['mine'\] gives a torch.nn.Module .* got int"):
        get_model_fn("mine", 3)
    monkeypatch.setitem(models_map, "mine", lambda num_classes, is_training: torch.nn.Linear(1, 1))
    with pytest.raises(FlagError, match="the network 'mine' does not say the size of its pictures"):
        get_model_fn("mine", 3)


# ------------------------------------------------------------------ loss


def test_label_smoothing_by_hand():
    logits, labels = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    target = torch.nn.functional.one_hot(labels, 4) * 0.9 + 0.1 / 4
    torch.testing.assert_close(cross_entropy(logits, labels, 0.1), -(target * logits.log_softmax(1)).sum(1).mean())


def test_the_loss_has_auxiliary_classifiers_and_weight_decay():
    network_fn = get_model_fn("lenet", 5, weight_decay=0.01, is_training=False)
    other = torch.randn(3, 5)
    module = network_fn.module
    images, labels = torch.randn(3, 28, 28, 3), torch.tensor([[1], [4], [0]])

    class Auxiliary(type(network_fn)):
        def __call__(self, images):
            logits, end_points = super().__call__(images)
            return logits, {**end_points, "AuxLogits": other}

    with_auxiliary = Auxiliary("lenet", module, 0.01, False, 28)
    loss, accuracy = classification_loss(with_auxiliary, images, labels)
    logits = module(images.permute(0, 3, 1, 2))[0]
    picked = [-values.log_softmax(1)[torch.arange(3), labels[:, 0]].mean() for values in (logits, other)]
    decay = 0.005 * sum(p.square().sum() for name, p in module.named_parameters() if name.endswith("weights"))
    torch.testing.assert_close(loss, picked[0] + 0.4 * picked[1] + decay)
    assert accuracy == (logits.argmax(1) == labels[:, 0]).float().mean()


# ------------------------------------------------------------------ restoring


@pytest.fixture
def lenet(tmp_path):
    """A network of 5 classes and a checkpoint of one of 9."""
    slim.save_slim_checkpoint(slim.create_model("lenet", 9), tmp_path / "lenet.ckpt")
    return get_model_fn("lenet", 5, is_training=True), str(tmp_path / "lenet.ckpt")


def test_variables_of_equal_name_and_shape_are_restored_bit_for_bit(lenet, caplog):
    network_fn, path = lenet
    caplog.set_level(logging.INFO, "fastnn")
    before = network_fn.module.slim_variables()
    restored = misc_utils.restore(network_fn, path)
    after, there = network_fn.module.slim_variables(), slim.load_slim_checkpoint(path)
    assert sorted(restored) == [
        f"LeNet/{layer}/{kind}" for layer in ("conv1", "conv2", "fc3") for kind in ("biases", "weights")
    ]
    for name in after:
        np.testing.assert_array_equal(after[name], there[name] if name in restored else before[name])
    assert "name = LeNet/conv1/weights, shape = (5, 5, 3, 32), *INIT_FROM_CKPT*" in caplog.text
    assert "name = LeNet/fc4/weights, shape = (1024, 5), left as it is: [1024, 9] in the checkpoint" in caplog.text
    assert "6 of 8 variables restored" in caplog.text


def test_a_checkpoint_is_read_once(lenet, monkeypatch):
    network_fn, path = lenet
    read = []
    monkeypatch.setattr(
        misc_utils.slim,
        "load_slim_checkpoint",
        lambda path, load=slim.load_slim_checkpoint: read.append(path) or load(path),
    )
    misc_utils.restore(network_fn, path)
    assert read == [path]


def test_an_evaluation_asks_for_every_variable(tmp_path, lenet):
    network_fn, path = lenet
    with pytest.raises(
        FlagError,
        match=r"has LeNet/fc4/biases of shape \[9\], lenet has \[5\]; --num_classes .* is another than in training",
    ):
        misc_utils.restore(network_fn, path, require_all=True)
    part = {name: value for name, value in slim.load_slim_checkpoint(path).items() if "fc4" not in name}
    slim.save_slim_checkpoint(part, tmp_path / "part.ckpt")
    with pytest.raises(
        FlagError,
        match="lacks 2 of 8 variables of lenet, such as LeNet/fc4/biases; --model_name is another than in training",
    ):
        misc_utils.restore(network_fn, str(tmp_path / "part.ckpt"), require_all=True)


def test_scopes_that_are_not_restored(lenet):
    network_fn, path = lenet
    restored = misc_utils.restore(network_fn, path, ["LeNet/conv1", "LeNet/fc3/", ""])
    assert sorted(restored) == ["LeNet/conv2/biases", "LeNet/conv2/weights"]


def test_scopes_may_be_called_otherwise_in_a_checkpoint(tmp_path, lenet):
    network_fn, path = lenet
    renamed = {name.replace("LeNet/", "Old/LeNet/"): value for name, value in slim.load_slim_checkpoint(path).items()}
    slim.save_slim_checkpoint(renamed, tmp_path / "renamed.ckpt")
    names = list(network_fn.module.slim_variables())
    mapping, here = misc_utils.get_assigment_map_from_checkpoint(
        names, str(tmp_path / "renamed.ckpt"), ("Old/LeNet", "LeNet")
    )
    assert mapping["Old/LeNet/conv1/weights"] == "LeNet/conv1/weights" and here["LeNet/conv1/weights"] == 1
    assert misc_utils.get_assigment_map_from_checkpoint(names, str(tmp_path / "renamed.ckpt"))[0] == {}
    with pytest.raises(FlagError, match="has no variable of lenet; it has Old/LeNet/conv1/biases"):
        misc_utils.restore(network_fn, str(tmp_path / "renamed.ckpt"))


def test_an_assignment_of_ones_own(lenet):
    network_fn, path = lenet
    found = misc_utils.restore(
        network_fn, path, assignment=lambda names, path: ({"LeNet/conv1/biases": "LeNet/conv1/biases"}, {})
    )
    assert found == ["LeNet/conv1/biases"]


def test_moving_statistics_are_restored_unless_told_otherwise(tmp_path):
    source = slim.create_model("mobilenet_v1_025", 3, image_size=32)
    with torch.no_grad():
        for buffer in source.buffers():
            buffer.add_(0.5)
    slim.save_slim_checkpoint(source, tmp_path / "m.ckpt")
    network_fn = get_model_fn("mobilenet_v1_025", 3, is_training=True)
    without = misc_utils.restore(network_fn, str(tmp_path / "m.ckpt"), with_statistics=False)
    assert not any("moving_" in name for name in without) and any(name.endswith("gamma") for name in without)
    assert any("moving_variance" in name for name in misc_utils.restore(network_fn, str(tmp_path / "m.ckpt")))


def test_trained_scopes():
    network_fn = get_model_fn("lenet", 5, is_training=True)
    chosen = misc_utils.trained_variables(network_fn, "LeNet/fc4, LeNet/fc3/biases")
    assert sorted(chosen) == ["LeNet/fc3/biases", "LeNet/fc4/biases", "LeNet/fc4/weights"]
    assert {name for name, p in network_fn.variables().items() if p.requires_grad} == set(chosen)
    with pytest.raises(FlagError, match="--trainable_scopes=Lenet: no variable begins so; there are LeNet/conv1/"):
        misc_utils.trained_variables(network_fn, "Lenet")


# ------------------------------------------------------------------ averages, hooks, workers


def test_moving_averages_by_hand():
    module = torch.nn.BatchNorm1d(2)
    average = MovingAverage(module, 0.6)
    shadow = module.weight.detach().clone()
    for step in range(1, 20):
        with torch.no_grad():
            module.weight.add_(0.3)
        decay = min(0.6, (1 + step) / (10 + step))
        shadow = decay * shadow + (1 - decay) * module.weight.detach()
        average.update(step)
    last = module.weight.detach().clone()
    with average.applied():
        torch.testing.assert_close(module.weight.detach(), shadow)
    assert torch.equal(module.weight, last)
    again = MovingAverage(module, 0.6)
    again.load_state_dict(average.state_dict())
    torch.testing.assert_close(again.state_dict()["weight"], shadow)
    with pytest.raises(FlagError, match="--moving_average_decay is between 0 and 1, got 1.5"):
        MovingAverage(module, 1.5)


def flags_of(*words):
    flags = Flags(TABLE)
    flags.parse(words)
    return flags


def test_hooks_by_name():
    found = hooks_utils.get_hooks(flags_of("--hooks= stopatstephook ,LoggingTensorHook,ProfilerHook"))
    assert [type(hook).__name__ for hook in found] == ["StopAtStepHook", "LoggingTensorHook"]
    assert hooks_utils.get_hooks(flags_of("--hooks=")) == []
    assert [
        type(h).__name__ for h in hooks_utils.get_hooks(flags_of("--hooks=ProfilerHook", "--profile_every_n_iters=3"))
    ] == ["ProfilerHook"]
    assert (
        hooks_utils.get_hooks(flags_of("--hooks=ProfilerHook", "--profile_every_n_iters=3", "--profile_at_task=1"))
        == []
    )
    assert hooks_utils.get_hooks(flags_of("--hooks=LoggingTensorHook", "--log_loss_every_n_iters=0")) == []
    with pytest.raises(FlagError, match="--hooks: there is no hook 'StopHook'. Did you mean 'StopAtStepHook'?"):
        hooks_utils.get_hooks(flags_of("--hooks=StopHook"))


@pytest.mark.parametrize(
    ("hosts", "index", "expected"),
    [
        (["a:1"], 0, {}),
        (
            ["a:1", "b:2"],
            1,
            {
                "RANK": "1",
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "1",
            },
        ),
        (
            ["a:1", "a:2", "b:1", "b:2"],
            3,
            {
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "1",
            },
        ),
    ],
)
def test_workers_by_their_hosts(hosts, index, expected):
    assert cluster_utils.launcher_variables(hosts, index) == expected


@pytest.mark.parametrize(
    ("hosts", "index", "message"),
    [
        (["a:1", "b:2"], 2, "--task_index is from 0 to 1, a worker of --worker_hosts; got 2"),
        (["a", "b:2"], 0, "--worker_hosts has host:port of every worker with commas between them, got 'a'"),
        (
            ["a:1", "b:2", "a:3"],
            0,
            "--worker_hosts has equally many workers of each host, one host behind the other; got a:1,b:2,a:3",
        ),
    ],
)
def test_hosts_that_are_none(hosts, index, message):
    with pytest.raises(FlagError) as error:
        cluster_utils.launcher_variables(hosts, index)
    assert message in str(error.value)


def test_task_id_is_another_name_of_task_index():
    assert cluster_utils.task_index(flags_of("--taskId=3")) == 3
    assert cluster_utils.task_index(flags_of("--taskId=3", "--task_index=1")) == 1


def test_a_loop_of_ones_own_with_paisoar():
    """The outline of the manual: an optimizer, a loss closure with a scale, clipping, and a train op."""
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = paisoar.ReplicatedVarsOptimizer(create("sgd", [w], 0.1), clip_norm=1.0)
    loss = optimizer.compute_loss(lambda: (w * torch.tensor([3.0, 4.0])).sum(), loss_scale=8.0)
    step = torch.tensor(0)
    train_op = optimizer.minimize(loss, global_step=step)
    assert train_op().item() == 11.0
    torch.testing.assert_close(w.detach(), torch.tensor([1.0 - 0.1 * 0.6, 2.0 - 0.1 * 0.8]))
    assert step == 1 and loss.replicas[0].item() == 11.0
    with pytest.raises(FlagError, match="loss_fn gives one scalar loss"):
        optimizer.minimize(optimizer.compute_loss(lambda: w * 2))()
    with pytest.raises(FlagError, match="compute_loss takes a function without arguments"):
        optimizer.compute_loss(3)
    with pytest.raises(FlagError, match="ReplicatedVarsOptimizer takes an optimizer of torch"):
        paisoar.ReplicatedVarsOptimizer(3)


def test_names_of_variables_are_slims():
    network_fn = model_factory.get_model_fn("lenet", 5)
    assert set(network_fn.variables()) == set(network_fn.module.slim_variables())
