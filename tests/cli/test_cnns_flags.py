"""The flags of the programs of examples/cnns: defaults, what follows from them, what is refused, and what they
change."""

from __future__ import annotations

import io
import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_programs import load
from tqdm import tqdm

import oneflow as flow

config, metrics, machines, optimizers, programs = load(
    "config", "metrics", "job_function_util", "optimizer_util", "of_cnn_train_val"
)


def parse(*flags: str, program: str = "train") -> Any:
    return config.parse(program, list(flags))


DEFAULTS = {
    "gpu_num_per_node": 1, "num_nodes": 1, "node_ips": ["192.168.1.13", "192.168.1.14"], "ctrl_port": 12138,
    "nccl_fusion_threshold_mb": 0, "nccl_fusion_max_ops": 0,
    "model": "resnet50", "dtype": "float32", "use_fp16": False, "use_xla": False, "channel_last": False, "pad_output": False,
    "fuse_bn_relu": False, "fuse_bn_add_relu": False, "num_classes": 1000,
    "train_data_dir": None, "train_data_part_num": 256, "val_data_dir": None, "val_data_part_num": 256,
    "num_examples": 1281167, "num_val_examples": 50000, "batch_size_per_device": 64, "val_batch_size_per_device": 8,
    "image_size": 224, "image_shape": (3, 224, 224), "resize_shorter": 256, "input_layout": "NHWC",
    "rgb_mean": (123.68, 116.779, 103.939), "rgb_std": (58.393, 57.12, 57.375), "gpu_image_decoder": False,
    "num_epochs": 90, "model_update": "sgd", "learning_rate": 0.256, "wd": 1 / 32768, "mom": 0.875,
    "lr_decay": "cosine", "lr_decay_rate": 0.94, "lr_decay_epochs": 2, "warmup_epochs": 5,
    "decay_rate": 0.9, "epsilon": 1.0, "gradient_clipping": 0.0, "label_smoothing": 0.1,
    "model_load_dir": None, "save_epoch_interval": 1, "save_last": True, "save_init": True,
    "log_dir": "./output", "loss_print_every_n_iter": 1, "image_path": "test_img/tiger.jpg", "top_k": 1, "label_file": None,
}  # fmt: skip


def test_defaults_are_those_of_the_published_programs():
    found = dict(vars(parse()))
    assert found.pop("model_save_dir").startswith("./output/snapshots/model_save-20")
    assert found == DEFAULTS


def test_flags_are_taken_as_published_scripts_write_them():
    args = parse(
        "--num_epoch=10",
        "--num_nodes=2",
        "--node_ips=192.168.1.1, 192.168.1.2",
        "--label-smoothing=0",
        "--rgb_mean=1,2,3",
    )
    assert (args.num_epochs, args.node_ips, args.label_smoothing, args.rgb_mean) == (
        10,
        ["192.168.1.1", "192.168.1.2"],
        0,
        (1, 2, 3),
    )
    assert parse("--use_fp16").use_fp16 and parse("--use_fp16=YES").use_fp16 and not parse("--use_fp16=0").use_fp16
    assert (parse("--momentum=0.5").mom, parse("--mom=0.6").mom) == (0.5, 0.6)
    assert [parse(f"--optimizer={name}").model_update for name in ("sgd", "adam", "rmsprop")] == [
        "momentum",
        "adam",
        "rmsprop",
    ]
    assert parse("--image_size=64").image_shape == (3, 64, 64) and parse("--image-shape=3,96,96").image_size == 96


def test_batches_and_epochs_follow_from_the_devices():
    args = parse(
        "--num_nodes=2",
        "--gpu_num_per_node=4",
        "--batch_size_per_device=16",
        "--num_examples=1000",
        "--num_val_examples=500",
    )
    assert (args.train_batch_size, args.val_batch_size, args.epoch_size, args.num_val_steps) == (128, 64, 8, 7)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model=lenet"], "invalid choice: 'lenet'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--channel_last"], "argument --channel_last: expected one argument"),
        (["--use_fp16=maybe"], "'maybe' is neither True nor False"),
        (["--optimizer=lamb"], "'lamb' is none of sgd, adam, rmsprop"),
        (["--num_epochs=0"], "--num_epochs=0 is less than 1"),
        (["--batch_size_per_device=0"], "--batch_size_per_device=0 is less than 1"),
        (["--num_nodes=3"], "--num_nodes=3, but --node_ips names 2: 192.168.1.13, 192.168.1.14"),
        (["--ctrl_port=0"], "--ctrl_port=0 is not a port"),
        (["--image_size=16"], "--image_size=16: resnet50 takes pictures of 32 and more"),
        (["--image_size=300"], "--resize_shorter=256 is less than --image_size=300"),
        (
            ["--image_size=64", "--image-shape=3,32,32"],
            "--image-shape=3,32,32 is not 3,size,size with the size 64 of --image_size",
        ),
        (["--num_val_examples=7"], "--num_val_examples=7 is less than a batch of 8"),
        (["--top_k=6"], "--top_k=6 is more than 5"),
        (["--label_smoothing=1"], "--label_smoothing=1.0 is not from 0 to below 1"),
        (["--learning_rate=-1"], "--learning_rate=-1.0 is less than 0"),
        (["--rgb-std=1,2"], "--rgb_std is three numbers"),
        (["--rgb-std=1,2,0"], "--rgb_std is above 0"),
        (["--use_fp16", "--dtype=float64"], "--use_fp16 goes with --dtype=float32, not with float64"),
        (["--gpu_image_decoder=True"], "--gpu_image_decoder=True is not supported"),
        (
            ["--train_data_dir=nowhere"],
            "--train_data_dir=nowhere has no file part-00000; --train_data_part_num=256 of them are needed",
        ),
        (["--val_data_dir=nowhere"], "--val_data_dir=nowhere has no file part-00000"),
        (["--model_load_dir=nowhere"], "--model_load_dir=nowhere is not a folder"),
        (["--label_file=nowhere"], "--label_file=nowhere is not a file"),
    ],
)
def test_a_wrong_flag_is_one_message(flags, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*flags)
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in told and told.count("\n") == 1 and told.endswith("; --help lists all flags\n")


def test_what_a_program_cannot_do_without_is_asked_for(tmp_path, capsys):
    for program in ("evaluate", "inference", "onnx"):
        with pytest.raises(SystemExit):
            parse(program=program)
        assert "--model_load_dir is needed: a snapshot that of_cnn_train_val.py has saved" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(f"--model_load_dir={tmp_path}", "--image_path=nowhere.jpg", program="inference")
    assert "--image_path=nowhere.jpg does not exist" in capsys.readouterr().err


def test_the_block_of_arguments(capsys):
    config.print_args(parse("--model=vgg"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["=" * 66, "Running vgg: num_gpu_per_node = 1, num_nodes = 1.", "=" * 66]
    assert [line.split(" = ")[0] for line in lines[3:-2]] == list(vars(parse()))
    assert lines[-2] == "-" * 66 and lines[-1].startswith("Time stamp: 20")


def test_machines_are_told_to_the_framework(monkeypatch):
    calls = []

    class Recorder:
        def __init__(self, name: str = "") -> None:
            self.name = name

        def __getattr__(self, member: str) -> Recorder:
            return Recorder(f"{self.name}.{member}".lstrip("."))

        def __call__(self, value: Any) -> None:
            calls.append((self.name, value))

    monkeypatch.setattr(machines, "flow", Recorder())
    machines.configure_machines(
        parse(
            "--num_nodes=2", "--node_ips=10.0.0.1, 10.0.0.2,10.0.0.3", "--gpu_num_per_node=4", "--nccl_fusion_max_ops=8"
        )
    )
    assert calls == [
        ("config.gpu_device_num", 4),
        ("env.ctrl_port", 12138),
        ("env.machine", [{"addr": "10.0.0.1"}, {"addr": "10.0.0.2"}]),
        ("env.log_dir", "./output"),
        ("config.collective_boxing.nccl_fusion_max_ops", 8),
    ]


@pytest.mark.parametrize(
    ("decay", "rates"),
    [
        ("cosine", {0: 0.0, 5: 0.5, 10: 0.5 * (1 + math.cos(math.pi * 0.01)), 500: 0.5, 1000: 0.0}),
        ("step", {10: 1.0, 300: 1.0, 301: 0.1, 601: 0.01, 801: 0.001}),
        ("polynomial", {500: 0.5 * (1 - 1e-5) + 1e-5, 1000: 1e-5}),
        ("exponential", {20: 0.94, 200: 0.94**10}),
        ("none", {0: 0.0, 10: 1.0, 1000: 1.0}),
    ],
)
def test_the_learning_rate_rises_and_then_falls(decay, rates):
    """100 epochs of 10 steps, the first of them warm-up."""
    flags = (
        "--num_examples=100",
        "--batch_size_per_device=10",
        "--num_epochs=100",
        "--warmup_epochs=1",
        "--learning_rate=1",
    )
    schedule = optimizers.learning_rate(parse(*flags, f"--lr_decay={decay}"))
    assert {t: schedule.lr(t) for t in rates} == pytest.approx(rates, abs=1e-6)


def test_the_flags_choose_the_optimizer():
    made = {
        name: optimizers.make_optimizer(parse(f"--model_update={name}", "--use_fp16"))
        for name in ("sgd", "momentum", "adam", "rmsprop")
    }
    assert [type(made[name]).__name__ for name in made] == ["SGDW", "SGDW", "AdamW", "RMSProp"]
    assert (made["sgd"].momentum, made["momentum"].momentum, made["rmsprop"].decay_rate, made["rmsprop"].epsilon) == (
        0.0,
        0.875,
        0.9,
        1.0,
    )
    for name in ("sgd", "momentum", "adam"):
        decay = made[name].weight_decay
        assert decay.of("Resnet-conv1-weight") == 1 / 32768
        for variable in (
            "Resnet-conv1_bn-gamma",
            "Resnet-conv1_bn_relu-beta",
            "Resnet-res2_0_branch2c_bn_add_relu-gamma",
        ):
            assert decay.of(variable) == 0
    assert all(
        optimizer.loss_scale.is_dynamic and optimizer.loss_scale.increment_period == 2000 for optimizer in made.values()
    )
    plain = optimizers.make_optimizer(parse("--gradient_clipping=2"))
    assert plain.loss_scale is None and plain.grad_clipping.clip_norm == 2


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ([], (64, 3, 11, 11)),
        (["--input_layout=NCHW"], (64, 3, 11, 11)),
        (["--channel_last=True"], (64, 11, 11, 3)),
        (["--channel_last=True", "--input_layout=NCHW"], (64, 11, 11, 3)),
        (["--pad_output"], (64, 4, 11, 11)),
        (["--pad_output", "--channel_last=True"], (64, 11, 11, 4)),
    ],
)
def test_layouts_and_channels_reach_the_first_convolution(flags, shape, capsys):
    train_net, inference_net = programs.make_jobs(
        parse("--model=alexnet", "--image_size=67", "--batch_size_per_device=2", *flags)
    )
    for job in (train_net.job, inference_net.job):
        job.trace()
        assert job.graph.decls["conv1-weight"].spec.shape == shape
    assert capsys.readouterr().out == "Loading synthetic data.\n" * 2


def test_the_dtype_is_that_of_all_variables():
    train_net, _ = programs.make_jobs(
        parse("--model=alexnet", "--image_size=67", "--batch_size_per_device=2", "--dtype=float64")
    )
    train_net.job.trace()
    assert {decl.spec.dtype.torch for decl in train_net.job.graph.decls.values()} == {flow.float64}


@pytest.mark.parametrize(("smoothing", "loss"), [("0.1", 1.0148), ("0", 0.0)])
def test_the_loss_of_a_perfect_guess_is_the_floor_of_smoothing(smoothing, loss):
    args = parse(f"--label_smoothing={smoothing}")

    @flow.global_function()
    def job(labels=flow.FixedTensorDef((1,), dtype=flow.int32), logits=flow.FixedTensorDef((1, 1000))):
        return programs.cross_entropy(labels, logits, args)

    logits = np.full((1, 1000), math.log(0.0001) if float(smoothing) else -100.0, np.float32)
    logits[0, 3] = math.log(0.9001)
    assert job(np.array([3], np.int32), logits).get().item() == pytest.approx(loss, abs=1e-3)


def results(hit: bool, loss: float | None = None) -> dict[str, np.ndarray]:
    predictions = np.tile(np.arange(8, dtype=np.float32), (4, 1))
    found = {"predictions": predictions, "labels": np.full(4, 7 if hit else 4)}
    return found | ({"loss": np.full(4, loss, np.float32)} if loss is not None else {})


def test_a_line_tells_the_window_since_the_one_before(capsys):
    metric = metrics.Metric("train", 2, 2)
    for step, (hit, loss) in enumerate([(True, 5.0), (False, 4.0), (True, 3.0), (True, 2.0), (False, 1.0)]):
        metric.callback(step)(results(hit, loss))
    lines = [line.split(", samples/s: ")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "train: epoch 2, iter 2, loss: 4.000000, top_1: 0.500000, top_k: 1.000000",
        "train: epoch 2, iter 4, loss: 2.000000, top_1: 1.000000, top_k: 1.000000",
    ]
    metrics.Metric("validation", 0, 1).add(0, results(False))
    assert capsys.readouterr().out.startswith(
        "validation: epoch 0, iter 1, top_1: 0.000000, top_k: 1.000000, samples/s: "
    )
    assert metrics.hits(np.eye(3, dtype=np.float32), np.array([0, 1, 0]), 5) == 3, (
        "of three classes all are among the first five"
    )


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_bar_shows_rate_and_time_left_on_a_terminal_only(on_terminal, monkeypatch, capsys, tmp_path):
    screen = io.StringIO()
    screen.isatty = lambda: on_terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(tqdm, "monitor_interval", 0)
    monkeypatch.setattr(programs, "steps_done", lambda job: 3)
    args = parse(
        "--num_examples=4",
        "--batch_size_per_device=2",
        "--num_epochs=3",
        "--save_last=False",
        "--save_epoch_interval=9",
    )
    step = SimpleNamespace(async_get=lambda callback: callback(results(True, 1.0)))
    programs.train(args, (lambda: step, lambda: step), SimpleNamespace(), None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", loss")[0] for line in lines] == [
        "train: epoch 1, iter 2",
        "train: epoch 2, iter 1",
        "train: epoch 2, iter 2",
    ]
    assert ("6/6" in screen.getvalue() and "iter" in screen.getvalue() and "<" in screen.getvalue()) == on_terminal
    assert on_terminal or screen.getvalue() == ""
