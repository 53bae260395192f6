"""FastNN's programs as a user runs them: the manual's commands on small made data."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from fastnn_records import picture_of, png_record, write_cifar10
from warm_python import WARM

import oneflow as flow

IMAGE_MODELS = Path(__file__).parents[2] / "examples" / "image_models"
TRAIN, EVALUATE = str(IMAGE_MODELS / "train_image_classifiers.py"), str(IMAGE_MODELS / "eval_image_classifiers.py")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar10")
    write_cifar10(folder)
    return folder


def run(*words, cwd=None, fails=False, python=None):
    done = subprocess.run(
        [*(python or WARM.command()), *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert bool(done.returncode) == fails, done.stderr
    return done


def weights(folder, step):
    return flow.load(folder / f"model.ckpt-{step}" / "model")


def are_equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


SMALL = (
    "--model_name=lenet",
    "--preprocessing_name=cifarnet",
    "--batch_size=4",
    "--num_classes=10",
    "--use_fp16=False",
    "--optimizer=momentum",
)


def test_the_manuals_pretraining(data, tmp_path):
    """As printed, with fewer and smaller steps."""
    done = run(
        TRAIN, "--task_type=pretrain", "--enable_paisoar=False", "--dataset_name=cifar10", "--train_files=cifar10_train.tfrecord",
        f"--dataset_dir={data}", "--model_name=resnet_v1_50", "--stop_at_step=3", "--batch_size=2", "--train_image_size=64", "--log_loss_every_n_iters=1",
        cwd=tmp_path,
    )  # fmt: skip
    assert "use_fp16: a CPU computes in float32" in done.stderr and "fastnn.tf stands in for it" in done.stderr
    lines = re.findall(
        r"\[[\d.]+ secs/step,\t[\d.]+ samples/sec\]\tloss = ([\d.]+),\taccuracy = ([\d.]+),\tlrate = 0.01,\tglobal_step = (\d)",
        done.stderr,
    )
    assert [line[2] for line in lines] == ["2", "3"]
    assert done.stdout == "" and list(tmp_path.iterdir()) == []


def test_training_evaluation_and_finetuning(data, tmp_path):
    run(TRAIN, *SMALL, "--dataset_name=cifar10", f"--dataset_dir={data}", "--stop_at_step=30", "--learning_rate=0.001", f"--checkpointDir={tmp_path}/a",
        "--moving_average_decay=0.5", f"--export_onnx={tmp_path}/net.onnx", "--profile_every_n_iters=20", "--print_model_statistics",
        "--checkpoint_format=tf", "--label_smoothing=0.1", "--max_gradient_norm=5", "--loss_scale=4")  # fmt: skip
    run_folder = tmp_path / "a"
    assert sorted(path.name for path in run_folder.iterdir() if path.is_dir()) == [
        "model.ckpt-0",
        "model.ckpt-30",
        "summaries",
    ]
    assert {"model.ckpt-30.index", "model.ckpt-30.data-00000-of-00001", "checkpoint", "timeline-20.json"} <= {
        path.name for path in run_folder.iterdir()
    }
    assert json.loads((run_folder / "timeline-20.json").read_text())["traceEvents"]
    found = run(
        EVALUATE, *SMALL, "--dataset_name=cifar10", f"--dataset_dir={data}", f"--checkpointDir={run_folder}"
    ).stdout
    accuracy, recall = re.fullmatch(r"Accuracy\[([\d.]+)\]\nRecall_5\[([\d.]+)\]\n", found).groups()
    assert float(accuracy) > 0.9 and float(recall) >= float(accuracy)
    averaged = run(
        EVALUATE,
        *SMALL,
        "--dataset_name=cifar10",
        f"--dataset_dir={data}",
        f"--checkpointDir={run_folder}",
        "--moving_average_decay=0.5",
    ).stdout
    assert averaged.startswith("Accuracy[")
    check_onnx(tmp_path / "net.onnx")
    # Finetuning from slim's files, with another classifier; the first checkpoint has the restored variables bit for
    # bit.
    done = run(TRAIN, *SMALL, "--num_classes=7", "--task_type=finetune", f"--model_dir={run_folder}", "--ckpt_file_name=model.ckpt-30.index".removesuffix(".index"),
               "--dataset_name=cifar10", f"--dataset_dir={data}", "--stop_at_step=1", f"--checkpointDir={tmp_path}/b", "--trainable_scopes=LeNet/fc4")  # fmt: skip
    assert "6 of 8 variables restored" in done.stderr
    before, first, last = weights(run_folder, 30), weights(tmp_path / "b", 0), weights(tmp_path / "b", 1)
    for name in before:
        if "fc4" in name:
            assert first[name].shape != before[name].shape and not torch.equal(first[name], last[name])
        else:
            assert torch.equal(first[name], before[name]) and torch.equal(last[name], before[name])


def check_onnx(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: torch.zeros(3, 28, 28, 3).numpy()})
    assert logits.shape == (3, 10)


def test_a_run_that_was_stopped_goes_on_bit_for_bit(data, tmp_path):
    words = (
        *SMALL,
        "--optimizer=rmsprop",
        "--dataset_name=cifar10",
        f"--dataset_dir={data}",
        "--shuffle_buffer_size=10",
        "--moving_average_decay=0.9",
    )
    run("-m", "fastnn.train", *words, "--stop_at_step=8", f"--checkpointDir={tmp_path}/whole", "--decay_scheme=")
    run("-m", "fastnn.train", *words, "--stop_at_step=5", f"--checkpointDir={tmp_path}/parts")
    done = run("-m", "fastnn.train", *words, "--stop_at_step=8", f"--checkpointDir={tmp_path}/parts")
    assert "going on after step 5" in done.stderr
    assert are_equal(weights(tmp_path / "whole", 8), weights(tmp_path / "parts", 8))
    assert are_equal(
        flow.load(tmp_path / "whole/model.ckpt-8/average"), flow.load(tmp_path / "parts/model.ckpt-8/average")
    )


@pytest.mark.slow
def test_a_run_that_has_ended_and_flags_that_are_not_its_own(data, tmp_path):
    words = [
        f"--dataset_dir={data}",
        "--dataset_name=cifar10",
        *SMALL,
        "--stop_at_step=2",
        f"--checkpointDir={tmp_path}",
    ]
    run(TRAIN, *words)
    assert "nothing to train: step 2 was the last; a larger --stop_at_step" in run(TRAIN, *words).stderr
    for other, was in (
        ("--num_classes=7", "--num_classes=10"),
        ("--optimizer=adam", "--optimizer=momentum"),
        ("--model_name=cifarnet", "--model_name=lenet"),
    ):
        said = run(TRAIN, *words, other, fails=True).stderr.splitlines()[-1]
        assert (
            f"model.ckpt-2 is of a run with {was}, this one has {other}; name another --checkpointDir, or start anew "
            f"with --resume=False" in said
        )
    said = run(EVALUATE, *words, "--num_classes=7", fails=True).stderr.splitlines()[-1]
    assert re.search(
        r"has LeNet/fc4/\w+ of shape \[10.*\], lenet has \[7.*\]; --num_classes .* is another than in training", said
    )


def test_a_run_that_was_killed_goes_on_bit_for_bit(data, tmp_path):
    words = [
        "-m",
        "fastnn.train",
        *SMALL,
        "--dataset_name=cifar10",
        f"--dataset_dir={data}",
        "--save_checkpoints_steps=2",
        "--stop_at_step=12",
        "--learning_rate=0.001",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *words, f"--checkpointDir={tmp_path}/parts"], env=environment, stderr=subprocess.DEVNULL
    )
    while not (tmp_path / "parts" / "model.ckpt-4").exists() and process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for folder in ("parts", "whole"):
        run(*words, f"--checkpointDir={tmp_path}/{folder}", python=[sys.executable])
    assert are_equal(weights(tmp_path / "whole", 12), weights(tmp_path / "parts", 12))
    assert len([path for path in (tmp_path / "parts").iterdir() if path.name.startswith("model.ckpt-")]) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("cifarnet", ["--batch_size=24"]),
        ("resnet_v1_50", ["--batch_size=12", "--train_image_size=40", "--preprocessing_name=cifarnet"]),
    ],
)
def test_networks_learn(data, tmp_path, network, words):
    run("-m", "fastnn.train", f"--model_name={network}", *words, "--num_classes=6", "--optimizer=momentum", "--learning_rate=0.01", "--dataset_name=cifar10",
        f"--dataset_dir={data}", "--stop_at_step=24", f"--checkpointDir={tmp_path}", "--log_loss_every_n_iters=1", f"--summaryDir={tmp_path}/s")  # fmt: skip
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(f"{tmp_path}/s")
    events.Reload()
    losses = [event.value for event in events.Scalars("loss")]
    assert min(losses[-5:]) < 0.7 * losses[0]


def test_a_data_set_a_network_and_a_preprocessing_of_ones_own(tmp_path):
    """As docs/fastnn.md does it."""
    import numpy as np

    from oneflow.data import write_records

    rng = np.random.default_rng(3)
    write_records(
        tmp_path / "mine.tfrecord", [png_record(n % 3, picture_of(n % 3, rng, 8)) for n in range(24)], "tfrecord"
    )
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "mine.py").write_text(
        (IMAGE_MODELS / "datasets" / "cifar10.py").read_text("utf-8"), "utf-8"
    )
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "from fastnn import flags\n"
        "from fastnn.models.model_factory import models_map\n"
        "from fastnn.preprocessing.preprocessing_factory import preprocessing_fn_map\n"
        "from fastnn.train import main\n"
        "flags.DEFINE_integer('width', 8, 'of the network')\n"
        "class Mine(torch.nn.Sequential):\n"
        "    default_image_size = 8\n"
        "    def __init__(self, num_classes, is_training):\n"
        "        width = flags.FLAGS.width\n"
        "        super().__init__(torch.nn.Flatten(), torch.nn.Linear(192, width), torch.nn.ReLU(), "
        "torch.nn.Linear(width, num_classes))\n"
        "def preprocess_image(image, height, width, is_training, **kw):\n"
        "    return image.float() / 255\n"
        "models_map['mine'] = Mine\n"
        "preprocessing_fn_map['mine'] = preprocess_image\n"
        "main()\n"
    )
    done = run("train.py", "--dataset_name=mine", "--dataset_dir=.", "--train_files=mine.tfrecord", "--model_name=mine", "--num_classes=3", "--width=16",
               "--optimizer=adam", "--opt_epsilon=1e-8", "--batch_size=8", "--stop_at_step=41", "--log_loss_every_n_iters=40", cwd=tmp_path)  # fmt: skip
    assert float(re.search(r"accuracy = ([\d.]+)", done.stderr)[1]) > 0.9


WRONG = [
    (
        ["--model_name=resnet_v1_51"],
        "--model_name=resnet_v1_51: there is no such network. Did you mean 'resnet_v1_50'?",
    ),
    (["--modelname=x"], "there is no flag --modelname. Did you mean 'model_name'? --help lists them"),
    (["--dataset_name=cifar"], "--dataset_name=cifar: there is no such data set. Did you mean 'cifar10'?"),
    (["--dataset_name=cifar10"], "--dataset_dir names the folder with the files of cifar10; it is not set"),
    (["--preprocessing_name=x", "--dataset_name=cifar10"], "preprocessing 'x' was not recognized."),
    (
        ["--task_type=finetune", "--model_dir=/x"],
        "--task_type=finetune --model_dir=/x needs --ckpt_file_name, the checkpoint in that folder",
    ),
    (["--task_type=finetune", "--model_dir=/x", "--ckpt_file_name=y"], "there is no folder /x for the checkpoint y"),
    (["--optimizer=sgdd", "--num_classes=2"], "--optimizer is one of"),
    (["--device=tpu"], "--device is cpu or cuda, got 'tpu'"),
    (["--job_name=ps"], "--job_name is one of 'worker', 'localhost'; got 'ps'."),
    (
        ["--num_classes=1"],
        "the data has labels from 1 to 1, and the network 1 classes; set --num_classes, or --labels_offset to move "
        "labels",
    ),
    (["--hooks=Stop"], "--hooks: there is no hook 'Stop'."),
    (
        ["--num_classes=2", "--checkpointDir=/dev/null/run"],
        "--checkpointDir=/dev/null/run: the folder cannot be made: Not a directory",
    ),
    (
        ["--num_classes=2", "--summaryDir=/dev/null/run"],
        "--summaryDir=/dev/null/run: the folder cannot be made: Not a directory",
    ),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[words[0] for words, _ in WRONG])
def test_a_wrong_word_ends_a_run_with_one_line(words, message):
    done = run("-m", "fastnn.train", "--model_name=lenet", "--batch_size=2", "--use_fp16=False", *words, fails=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("fastnn: ") and message in last
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [],
            "--checkpointDir names the folder of the run's checkpoints, or --model_dir and --ckpt_file_name one "
            "checkpoint; none is set",
        ),
        (["--checkpointDir=."], "--checkpointDir=. has no checkpoint: there is no file 'last_checkpoint' in it"),
    ],
)
def test_an_evaluation_without_a_checkpoint(words, message, tmp_path):
    done = run("-m", "fastnn.evaluate", "--model_name=lenet", *words, fails=True, cwd=tmp_path)
    assert done.stderr.strip() == f"fastnn: {message}"


def test_help(tmp_path):
    for program in (["-m", "fastnn.train"], ["-m", "fastnn.evaluate"], [TRAIN], [EVALUATE]):
        assert "Learning rate:\n  --warmup_steps\n" in run(*program, "--help").stdout


def test_a_stopped_run_saves(data, tmp_path):
    """SIGTERM ends it after a whole step, with a checkpoint from which it goes on."""
    words = [
        "-m",
        "fastnn.train",
        *SMALL,
        "--dataset_name=cifar10",
        f"--dataset_dir={data}",
        "--stop_at_step=100000",
        f"--checkpointDir={tmp_path}",
        "--save_checkpoints_steps=1000000",
        "--num_epochs=100000",
    ]
    process = subprocess.Popen(
        [sys.executable, *words, "--log_loss_every_n_iters=1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "global_step = 3" in line:
            process.send_signal(signal.SIGTERM)
            break
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    step = (tmp_path / "last_checkpoint").read_text().strip().removeprefix("model.ckpt-")
    assert int(step) >= 3 and (tmp_path / f"model.ckpt-{step}" / "run").is_dir()
