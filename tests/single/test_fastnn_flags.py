"""FastNN's flags: what a command line may say, defaults, and the one line that a wrong one gets."""

from __future__ import annotations

import logging
import re

import pytest

from fastnn import flags as module
from fastnn import train
from fastnn.flags import TABLE, Flag, FlagError, Flags
from fastnn.trainer import ClassifierTrainer
from libai.engine.trainer import TrainerBase


@pytest.fixture
def flags():
    return Flags(TABLE)


# The defaults as FastNN's manual and code have them; None stands for "not set".
DEFAULTS = {
    "dataset_name": "mock", "dataset_dir": None, "num_sample_per_epoch": 1000000, "num_classes": 100, "train_files": None,
    "preprocessing_name": None, "shuffle_buffer_size": 1024, "num_parallel_batches": 8, "prefetch_buffer_size": 32,
    "num_preprocessing_threads": 16, "datasets_use_caching": False, "task_type": "pretrain", "model_name": "inception_resnet_v2",
    "num_epochs": 100, "weight_decay": 0.00004, "max_gradient_norm": None, "batch_size": 32, "model_dir": "", "ckpt_file_name": None,
    "warmup_steps": 0, "warmup_scheme": "t2t", "decay_scheme": "", "learning_rate_decay_factor": 0.94, "learning_rate_decay_type": "exponential",
    "learning_rate": 0.01, "end_learning_rate": 0.0001, "optimizer": "rmsprop", "adadelta_rho": 0.95, "adagrad_initial_accumulator_value": 0.1,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "opt_epsilon": 1.0, "ftrl_learning_rate_power": -0.5, "ftrl_initial_accumulator_value": 0.1,
    "ftrl_l1": 0.0, "ftrl_l2": 0.0, "momentum": 0.9, "rmsprop_momentum": 0.9, "rmsprop_decay": 0.9, "stop_at_step": 100,
    "log_loss_every_n_iters": 10, "profile_every_n_iters": 0, "profile_at_task": 0, "log_device_placement": False,
    "print_model_statistics": False, "hooks": "StopAtStepHook,ProfilerHook,LoggingTensorHook,CheckpointSaverHook", "use_fp16": True,
    "loss_scale": 1.0, "enable_paisoar": True, "protocol": "grpc", "task_index": 0, "worker_hosts": None, "labels_offset": 0,
    "log_trainable_vars_statistics": False, "log_optimizer_vars_statistics": False, "inter_op_parallelism_threads": 256,
    "intra_op_parallelism_threads": 96, "colocate_gradients_with_ops": True, "output_dir": ".", "checkpointDir": None,
    "save_checkpoints_steps": 1000, "tensor_fusion_policy": "default", "communication_policy": "nccl_fullring",
    "tensor_fusion_max_bytes": 8388608,
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_fastnns(flags, name):
    value = getattr(flags, name)
    assert value == DEFAULTS[name] and type(value) is type(DEFAULTS[name])
    assert not flags.is_given(name)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--batch_size=64"], "batch_size", 64),
        (["--batch_size", "64"], "batch_size", 64),
        (["--learning_rate=1e-3"], "learning_rate", 0.001),
        (["--learning_rate=1"], "learning_rate", 1.0),
        (["--use_fp16"], "use_fp16", True),
        (["--nouse_fp16"], "use_fp16", False),
        (["--use_fp16=False"], "use_fp16", False),
        (["--use_fp16", "false"], "use_fp16", False),
        (["--use_fp16=0"], "use_fp16", False),
        (["--enable_paisoar=True"], "enable_paisoar", True),
        (["--enable_paisoar", "--batch_size=2"], "enable_paisoar", True),
        (["--train_files=0.tfrecord,1.tfrecord"], "train_files", "0.tfrecord,1.tfrecord"),
        (["--dataset_dir=/tmp/a=b"], "dataset_dir", "/tmp/a=b"),
        (["--hooks="], "hooks", ""),
        (["--task_type=pretrain", " ", "--batch_size=3"], "batch_size", 3),
    ],
)
def test_forms_of_a_command_line(flags, words, name, value):
    flags.parse(words)
    assert getattr(flags, name) == value
    assert flags.is_given(name)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batchsize=3"], "there is no flag --batchsize. Did you mean 'batch_size'? --help lists them"),
        (["--batch_size=many"], "--batch_size takes a whole number, got 'many'"),
        (["--batch_size=3.5"], "--batch_size takes a whole number, got '3.5'"),
        (["--learning_rate=fast"], "--learning_rate takes a number, got 'fast'"),
        (["--batch_size=0"], "--batch_size is at least 1, got 0"),
        (["--learning_rate=-0.1"], "--learning_rate is at least 0, got -0.1"),
        (["--weight_decay=nan"], "--weight_decay is at least 0, got nan"),
        (["--use_fp16=maybe"], "--use_fp16 takes true or false, got 'maybe'"),
        (["--batch_size"], "--batch_size needs a value: a whole number"),
        (["--task_type=train"], "--task_type is one of 'pretrain', 'finetune'; got 'train'. Did you mean 'pretrain'?"),
        (
            ["--decay_scheme=luong23"],
            "--decay_scheme is one of '', 'luong234', 'luong5', 'luong10'; got 'luong23'. Did you mean 'luong234'?",
        ),
        (["resnet_v1_50"], "a flag begins with --, got 'resnet_v1_50'; quote values that have blanks"),
    ],
)
def test_a_wrong_flag_is_one_line(flags, words, message):
    with pytest.raises(FlagError, match=re.escape(message)):
        flags.parse(words)
    assert not any(flags.is_given(name) for name in flags)


def test_a_flag_without_meaning_says_so_when_it_is_set(flags, capsys):
    flags.parse(["--batch_size=2", "--inter_op_parallelism_threads=4", "--num_sample_per_epoch=50000"])
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "fastnn: --inter_op_parallelism_threads is set and changes nothing: torch has no session",
        "fastnn: --num_sample_per_epoch is set and changes nothing: no schedule reads it, as in FastNN",
    ]


def test_a_program_adds_flags_of_its_own(monkeypatch):
    mine = Flags(TABLE)
    monkeypatch.setattr(module, "FLAGS", mine)
    module.DEFINE_string("tag", None, "a name for the run")
    module.DEFINE_integer("patience", 3, "epochs")
    module.DEFINE_float("bar", 0.5, "a number")
    module.DEFINE_boolean("loud", False, "or not")
    module.DEFINE_bool("soft", True, "or not")
    mine.parse(["--patience=5", "--loud", "--nosoft"])
    assert (mine.tag, mine.patience, mine.bar, mine.loud, mine.soft) == (None, 5, 0.5, True, False)
    assert "patience" not in mine.values() and "batch_size" in mine.values()
    with pytest.raises(FlagError, match="the flag --batch_size is defined already"):
        module.DEFINE_integer("batch_size", 5, "again")


def test_flags_are_set_by_name_with_the_same_checks(flags):
    flags.batch_size = 3
    assert flags.batch_size == 3
    with pytest.raises(FlagError, match="--batch_size takes a whole number, got '3'"):
        flags.batch_size = "3"
    with pytest.raises(FlagError, match="there is no flag --batchsize. Did you mean 'batch_size'?"):
        flags.batchsize = 3
    with pytest.raises(AttributeError, match="there is no flag --batchsize. Did you mean 'batch_size'?"):
        _ = flags.batchsize
    flags.reset()
    assert flags.batch_size == 32


def test_help_lists_every_flag_in_its_group(flags):
    text = flags.help("train")
    for group in (
        "Dataset",
        "Dataset preprocessing",
        "Model",
        "Learning rate",
        "Optimizer",
        "Logging",
        "Performance",
        "Cluster",
    ):
        assert f"\n{group}:\n" in text
    for flag in TABLE:
        assert f"  --{flag.name}\n" in text
    assert "default 0.94" in text and "Changes nothing here: torch has no session." in text


def test_a_default_of_another_kind_is_refused():
    with pytest.raises(FlagError, match="--n takes a whole number, got 'x'"):
        Flags([Flag("n", int, "x", "")])


def test_the_program_leaves_other_loggers_alone(capsys):
    logger = logging.getLogger("libai.engine.trainer")
    before = logger.level, logger.disabled, list(logger.filters)
    with pytest.raises(SystemExit, match="--no_such_flag"):
        train.main(["--no_such_flag=1"])
    assert (logger.level, logger.disabled, logger.filters) == before


def test_an_error_in_a_step_is_not_logged_by_the_loop(caplog):
    class Failing(ClassifierTrainer):
        def __init__(self) -> None:
            TrainerBase.__init__(self)

        def run_step(self) -> None:
            raise ZeroDivisionError

    with caplog.at_level(logging.INFO), pytest.raises(ZeroDivisionError):
        Failing().train(0, 1)
    assert "ZeroDivisionError" not in caplog.text
