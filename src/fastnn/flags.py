"""The flags of FastNN: one table, a parser, and ``FLAGS``, which holds what the command line said.

A program of one's own adds flags before ``parse``::

    from fastnn import flags
    flags.DEFINE_integer("patience", 3, "epochs without progress before training ends")

``--name=value`` and ``--name value`` set a flag; for a bool also ``--name`` and ``--noname``.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastnn.errors import FlagError
from oneflow.engine.core.errors import nearest

_WORDS = {"true": True, "t": True, "1": True, "yes": True, "false": False, "f": False, "0": False, "no": False}
_OWN_GROUP = "Flags of this program"
_AT_LEAST = {
    **dict.fromkeys(
        (
            "batch_size",
            "num_classes",
            "num_epochs",
            "num_parallel_batches",
            "prefetch_buffer_size",
            "num_preprocessing_threads",
        ),
        1,
    ),
    **dict.fromkeys(("stop_at_step", "train_image_size", "tensor_fusion_max_bytes"), 1),
    **dict.fromkeys(("learning_rate", "weight_decay", "warmup_steps", "shuffle_buffer_size", "task_index"), 0),
}


@dataclass(frozen=True)
class Flag:
    """One flag. ``unused`` says why setting it changes nothing here; None for a flag that has a meaning."""

    name: str
    kind: type
    default: Any
    help: str
    group: str = _OWN_GROUP
    unused: str | None = None
    choices: tuple[str, ...] = ()

    def value_of(self, text: str) -> Any:
        """The value that a word of the command line means."""
        try:
            value = _READERS[self.kind](text)
        except ValueError:
            raise FlagError(f"--{self.name} takes {_SAID[self.kind]}, got {text!r}") from None
        return self.checked(value)

    def checked(self, value: Any) -> Any:
        """The value, where the flag takes it; an int serves for a float."""
        if value is None:
            return None
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            raise FlagError(f"--{self.name} takes {_SAID[self.kind]}, got {value!r}")
        if self.choices and value not in self.choices:
            raise FlagError(
                f"--{self.name} is one of {', '.join(map(repr, self.choices))}; got "
                f"{value!r}.{nearest(str(value), self.choices)}"
            )
        self._require_least(value)
        return value

    def _require_least(self, value: Any) -> None:
        least = _AT_LEAST.get(self.name) if self.group != _OWN_GROUP else None
        if least is not None and not value >= least:
            raise FlagError(f"--{self.name} is at least {least}, got {value}")


class Flags:
    """Flags by name: ``flags.batch_size`` is the value that was given, or the default."""

    def __init__(self, table: Sequence[Flag] = ()) -> None:
        self.__dict__["_table"] = {}
        self.__dict__["_values"] = {}
        for flag in table:
            self.define(flag)

    def define(self, flag: Flag) -> None:
        """One flag more; a name that is there already is refused."""
        known = self._table.get(flag.name)
        if known is not None and known != flag:
            raise FlagError(f"the flag --{flag.name} is defined already ({known.group}): {known.help}")
        flag.checked(flag.default)
        self._table[flag.name] = flag

    def __getattr__(self, name: str) -> Any:
        flag = self.__dict__.get("_table", {}).get(name)
        if flag is None:
            raise AttributeError(f"there is no flag --{name}.{nearest(name, self.__dict__.get('_table', {}))}")
        return self._values.get(name, flag.default)

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = self._known(name).checked(value)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def is_given(self, name: str) -> bool:
        """Whether a value was set, be it the default's."""
        return name in self._values

    def values(self) -> dict[str, Any]:
        """FastNN's flags with their values; those that a program has added are its own matter."""
        return {name: getattr(self, name) for name, flag in self._table.items() if flag.group != _OWN_GROUP}

    def reset(self) -> None:
        """Forgets what was set; definitions stay."""
        self._values.clear()

    def parse(self, argv: Sequence[str] | None = None) -> None:
        """Sets the flags of a command line, by default that of this process. Flags that mean nothing here are told of
        once, on stderr."""
        words = [
            word for word in (sys.argv[1:] if argv is None else argv) if not word.isspace()
        ]  # a blank behind the backslash of a line, as in the manual
        found: dict[str, Any] = {}
        while words:
            name, value = self._take(words)
            found[name] = value
        self._values.update(found)
        for name in found:
            if (why := self._table[name].unused) is not None:
                print(f"fastnn: --{name} is set and changes nothing: {why}", file=sys.stderr)

    def _take(self, words: list[str]) -> tuple[str, Any]:
        """One flag from the front of a command line."""
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise FlagError(f"a flag begins with --, got {word!r}; quote values that have blanks")
        name, equals, text = word[2:].partition("=")
        flag = self._table.get(name)
        if flag is None and not equals and name.startswith("no") and self._is_bool(name[2:]):
            return name[2:], False
        if flag is None:
            raise FlagError(f"there is no flag --{name}.{nearest(name, self._table)} --help lists them")
        if equals:
            return name, flag.value_of(text)
        if flag.kind is bool:
            return name, flag.value_of(words.pop(0)) if words and words[0].lower() in _WORDS else True
        if not words:
            raise FlagError(f"--{name} needs a value: {_SAID[flag.kind]}")
        return name, flag.value_of(words.pop(0))

    def _is_bool(self, name: str) -> bool:
        return name in self._table and self._table[name].kind is bool

    def _known(self, name: str) -> Flag:
        if name not in self._table:
            raise FlagError(f"there is no flag --{name}.{nearest(name, self._table)}")
        return self._table[name]

    def help(self, program: str) -> str:
        """What ``--help`` prints: every flag with its default, in groups."""
        groups: dict[str, list[Flag]] = {}
        for flag in self._table.values():
            groups.setdefault(flag.group, []).append(flag)
        lines = [f"usage: {program} [--flag=value ...]", ""]
        for group, flags in groups.items():
            lines += [f"{group}:"]
            for flag in flags:
                lines += _told(flag)
            lines += [""]
        return "\n".join(lines)


def _told(flag: Flag) -> list[str]:
    more = f" Changes nothing here: {flag.unused}." if flag.unused else ""
    text = f"{flag.help} ({flag.kind.__name__}, default {flag.default!r}){more}"
    return [f"  --{flag.name}", *textwrap.wrap(text, 110, initial_indent="      ", subsequent_indent="      ")]


def _bool(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ValueError
    return _WORDS[text.lower()]


_READERS: Mapping[type, Callable[[str], Any]] = {str: str, int: int, float: float, bool: _bool}
_SAID = {str: "a word", int: "a whole number", float: "a number", bool: "true or false"}


def _flags(group: str, *rows: tuple[Any, ...]) -> list[Flag]:
    return [Flag(name, kind, default, text, group, *more) for name, kind, default, text, *more in rows]


_NO_SESSION = "torch has no session"
TABLE: list[Flag] = [
    *_flags(
        "Dataset",
        (
            "dataset_name",
            str,
            "mock",
            "the data set: mock, cifar10, mnist, flowers, or one of your own (datasets_map, or datasets/<name>.py)",
        ),
        ("dataset_dir", str, None, "the folder of the data set's files"),
        (
            "num_sample_per_epoch",
            int,
            1000000,
            "the number of samples of the data set",
            "no schedule reads it, as in FastNN",
        ),
        ("num_classes", int, 100, "the width of the classifier"),
        ("train_files", str, None, "file names in dataset_dir with commas between them; by default the data set's own"),
        ("eval_files", str, None, "file names to evaluate on, likewise; by default the data set's test files"),
        ("labels_offset", int, 0, "subtracted from every label; 1 leaves out the background class of ImageNet"),
        ("file_pattern", str, None, "a pattern of file names", "name the files by --train_files"),
        ("reader", str, None, "a reader class", "files are TFRecord"),
    ),
    *_flags(
        "Dataset preprocessing",
        ("preprocessing_name", str, None, "the preprocessing; by default that of the model"),
        ("shuffle_buffer_size", int, 1024, "how many records are mixed; 0 or 1 for none"),
        ("num_parallel_batches", int, 8, "batches that are made at the same time, ahead of the step"),
        ("prefetch_buffer_size", int, 32, "batches that may be ready ahead of the step, as far as 256 MiB hold them"),
        (
            "num_preprocessing_threads",
            int,
            16,
            "threads that decode and preprocess; at most as many as there are cores are started",
        ),
        ("datasets_use_caching", bool, False, "keep the records, still compressed, in memory after the first pass"),
    ),
    *_flags(
        "Model",
        (
            "task_type",
            str,
            "pretrain",
            "pretrain, or finetune, which restores a checkpoint first",
            None,
            ("pretrain", "finetune"),
        ),
        ("model_name", str, "inception_resnet_v2", "the network"),
        ("train_image_size", int, None, "the side of the pictures; by default the network's own"),
        ("num_epochs", int, 100, "passes over the data; mock data has no end"),
        ("weight_decay", float, 0.00004, "L2 on the variables that slim regularises in this network"),
        ("max_gradient_norm", float, None, "clips the gradients by their common norm"),
        ("batch_size", int, 32, "samples per worker and step"),
        ("model_dir", str, "", "the folder of the checkpoint to start from"),
        ("ckpt_file_name", str, None, "the name of that checkpoint: a slim .ckpt, or a checkpoint of this program"),
        (
            "checkpoint_exclude_scopes",
            str,
            None,
            "variables that are not restored: beginnings of names with commas between them",
        ),
        ("trainable_scopes", str, None, "variables that are trained, likewise; by default all"),
        (
            "restore_moving_statistics",
            bool,
            True,
            "finetune restores the moving means and variances of batch norms too; FastNN did not",
        ),
        ("label_smoothing", float, 0.0, "targets are one-hot * (1 - s) + s / classes"),
        (
            "moving_average_decay",
            float,
            None,
            "keep an exponential moving average of all variables, which evaluation uses",
        ),
    ),
    *_flags(
        "Learning rate",
        ("warmup_steps", int, 0, "steps in which the rate rises"),
        ("warmup_scheme", str, "t2t", "t2t: exponentially, from a hundredth; any other word: no warm-up"),
        (
            "decay_scheme",
            str,
            "",
            "luong234, luong5, luong10: when the rate is lowered; empty for never",
            None,
            ("", "luong234", "luong5", "luong10"),
        ),
        (
            "learning_rate_decay_factor",
            float,
            0.94,
            "what each lowering multiplies the rate by, of the luong schemes too: FastNN's code does that, though its "
            "text says they halve it",
        ),
        ("luong_halving", bool, False, "the luong schemes halve the rate, as FastNN's text says"),
        (
            "learning_rate_decay_type",
            str,
            "exponential",
            "fixed (which also leaves warm-up out), exponential or polynomial",
            None,
            ("fixed", "exponential", "polynomial"),
        ),
        ("learning_rate", float, 0.01, "the first rate"),
        ("end_learning_rate", float, 0.0001, "the last rate of the polynomial decay"),
    ),
    *_flags(
        "Optimizer",
        (
            "optimizer",
            str,
            "rmsprop",
            "adadelta, adagrad, adam, adamweightdecay, ftrl, momentum, sgd or rmsprop, as TensorFlow 1 computes them",
        ),
        ("adadelta_rho", float, 0.95, "decay of adadelta"),
        ("adagrad_initial_accumulator_value", float, 0.1, "first value of adagrad's sums"),
        ("adam_beta1", float, 0.9, "decay of adam's first moments"),
        ("adam_beta2", float, 0.999, "decay of adam's second moments"),
        ("opt_epsilon", float, 1.0, "epsilon of adadelta, adam, adamweightdecay and rmsprop"),
        ("ftrl_learning_rate_power", float, -0.5, "the power of ftrl"),
        ("ftrl_initial_accumulator_value", float, 0.1, "first value of ftrl's sums"),
        ("ftrl_l1", float, 0.0, "L1 of ftrl"),
        ("ftrl_l2", float, 0.0, "L2 of ftrl"),
        ("momentum", float, 0.9, "of the optimizer momentum"),
        ("rmsprop_momentum", float, 0.9, "momentum of rmsprop"),
        ("rmsprop_decay", float, 0.9, "decay of rmsprop"),
    ),
    *_flags(
        "Logging",
        ("stop_at_step", int, 100, "the number of steps, to which the decay schemes refer too"),
        ("log_loss_every_n_iters", int, 10, "steps between two lines of the log; 0 for none"),
        ("profile_every_n_iters", int, 0, "steps between two Chrome traces (timeline-<step>.json); 0 for none"),
        ("profile_at_task", int, 0, "the worker that writes traces"),
        ("log_device_placement", bool, False, "print the device of every parameter"),
        ("print_model_statistics", bool, False, "print every trainable variable with its shape and size"),
        ("log_trainable_vars_statistics", bool, False, "the same as print_model_statistics"),
        ("log_optimizer_vars_statistics", bool, False, "print the optimizer's variables likewise"),
        (
            "hooks",
            str,
            "StopAtStepHook,ProfilerHook,LoggingTensorHook,CheckpointSaverHook",
            "hooks with commas between them",
        ),
        ("summaryDir", str, None, "where summaries for TensorBoard go; by default summaries/ beside the checkpoints"),
        ("output_dir", str, ".", "where files go that have no folder of their own"),
        ("checkpointDir", str, None, "the folder of checkpoints; none are saved without it"),
        ("save_checkpoints_steps", int, 1000, "steps between two checkpoints"),
        (
            "checkpoint_format",
            str,
            "fastnn",
            "fastnn: resumes bit for bit; tf: slim's files beside it, which TensorFlow reads",
            None,
            ("fastnn", "tf"),
        ),
        ("resume", bool, True, "go on from the newest checkpoint of checkpointDir"),
        ("export_onnx", str, None, "write the trained network to this ONNX file"),
    ),
    *_flags(
        "Performance",
        (
            "use_fp16",
            bool,
            True,
            "mixed precision: float16 on a GPU, with float32 weights; see --cpu_bfloat16 for the CPU",
        ),
        (
            "cpu_bfloat16",
            bool,
            False,
            "with use_fp16, compute in bfloat16 on the CPU; otherwise the CPU computes in float32",
        ),
        ("loss_scale", float, 1.0, "the loss is multiplied by it for the backward pass, gradients divided again"),
        ("enable_paisoar", bool, True, "data parallel over the workers that there are"),
        (
            "protocol",
            str,
            "grpc",
            "how workers speak; grpc and grpc+verbs are taken, and are gloo or NCCL",
            None,
            ("grpc", "grpc+verbs", "grpc+gdr", "grpc+mpi"),
        ),
        ("seed", int, 0, "of first values, dropout and the order of records"),
        ("device", str, None, "cpu or cuda; by default cuda where there is one"),
        ("inter_op_parallelism_threads", int, 256, "threads of a session", _NO_SESSION),
        ("intra_op_parallelism_threads", int, 96, "threads of an op", "set OMP_NUM_THREADS"),
        ("colocate_gradients_with_ops", bool, True, "where gradients are computed", "FastNN did not read it either"),
        (
            "tensor_fusion_policy",
            str,
            "default",
            "how gradients are put together",
            "buckets are filled in the order of the backward pass",
        ),
        ("communication_policy", str, "nccl_fullring", "how workers are connected", "gloo and NCCL decide it"),
        ("tensor_fusion_max_bytes", int, 8388608, "bytes of gradients that are summed at once"),
    ),
    *_flags(
        "Cluster",
        ("worker_hosts", str, None, "host:port of every worker with commas between them"),
        ("job_name", str, None, "worker", None, ("worker", "localhost")),
        ("task_index", int, 0, "the number of this worker"),
        ("taskId", int, None, "the same as task_index"),
        ("worker_count", int, None, "the number of workers", "it is counted from --worker_hosts"),
        ("ps_hosts", str, None, "parameter servers", "there are none: gradients are summed over the workers"),
        ("ps_count", int, None, "parameter servers", "there are none: gradients are summed over the workers"),
        ("tables", str, None, "tables of the PAI platform", "data comes from files"),
        (
            "buckets",
            str,
            None,
            "buckets of the PAI platform",
            "data comes from files; --dataset_dir takes fsspec addresses",
        ),
        ("outputs", str, None, "tables of the PAI platform", "results go to files"),
    ),
]

FLAGS = Flags(TABLE)


def DEFINE_string(name: str, default: str | None, help: str) -> None:
    """A flag of one's own that takes a word."""
    FLAGS.define(Flag(name, str, default, help))


def DEFINE_integer(name: str, default: int | None, help: str) -> None:
    """A flag of one's own that takes a whole number."""
    FLAGS.define(Flag(name, int, default, help))


def DEFINE_float(name: str, default: float | None, help: str) -> None:
    """A flag of one's own that takes a number."""
    FLAGS.define(Flag(name, float, default, help))


def DEFINE_boolean(name: str, default: bool | None, help: str) -> None:
    """A flag of one's own that is true or false."""
    FLAGS.define(Flag(name, bool, default, help))


DEFINE_bool = DEFINE_boolean
