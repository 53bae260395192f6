"""The flags of all the programs here, their checks, and the block of arguments that a program prints first."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from models import MODELS

PART = "part-{:05d}"
LARGEST_TOP_K = 5


class Arguments(argparse.Namespace):
    """The flags, and the quantities that follow from several of them."""

    @property
    def train_batch_size(self) -> int:
        """Of one step, on all devices together."""
        return self.num_nodes * self.gpu_num_per_node * self.batch_size_per_device

    @property
    def val_batch_size(self) -> int:
        return self.num_nodes * self.gpu_num_per_node * self.val_batch_size_per_device

    @property
    def epoch_size(self) -> int:
        """Steps of an epoch of training."""
        return math.ceil(self.num_examples / self.train_batch_size)

    @property
    def num_val_steps(self) -> int:
        return self.num_val_examples // self.val_batch_size

    @property
    def data_format(self) -> str:
        """The layout of the network."""
        return "NHWC" if self.channel_last else "NCHW"


def parse(program: str, argv: Sequence[str] | None = None) -> Arguments:
    """The checked arguments of a program: "train", "evaluate", "inference" or "onnx". A wrong one ends it with one
    message."""
    parser = _Parser(
        description="CNNs for image classification", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for add in (_add_machines, _add_network, _add_data, _add_training, _add_files):
        add(parser)
    args = parser.parse_args(argv, Arguments())
    try:
        _settle_size(args)
        _check_sizes(args)
        _check_machines(args)
        _check_numbers(args)
        _check_folders(args, program)
    except ValueError as error:
        parser.error(str(error))
    return args


def print_args(args: Arguments) -> None:
    """The arguments as they are in force, in the order of the flags."""
    print("=" * 66)
    print(f"Running {args.model}: num_gpu_per_node = {args.gpu_num_per_node}, num_nodes = {args.num_nodes}.")
    print("=" * 66)
    for name, value in vars(args).items():
        print(f"{name} = {value}")
    print("-" * 66)
    print(f"Time stamp: {datetime.now():%Y-%m-%d-%H:%M:%S}", flush=True)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Only the message: the usage of sixty flags would hide it."""
        self.exit(2, f"{self.prog}: error: {message}; --help lists all flags\n")


# ------------------------------------------------------------------ flags


def _add_machines(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("machines").add_argument
    add("--gpu_num_per_node", type=int, default=1, help="devices of each machine")
    add("--num_nodes", type=int, default=1, help="machines; the same command is run on each")
    add(
        "--node_ips",
        type=_words,
        default="192.168.1.13,192.168.1.14",
        help="their addresses, the first one prints and saves",
    )
    add("--ctrl_port", type=int, default=12138, help="the port at which they meet, of several machines only")
    add(
        "--nccl_fusion_threshold_mb",
        type=int,
        default=0,
        help="NCCL: fuse collectives up to this size; 0 leaves it alone",
    )
    add("--nccl_fusion_max_ops", type=int, default=0, help="NCCL: fuse so many collectives at most; 0 leaves it alone")


def _add_network(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("network").add_argument
    add("--model", choices=list(MODELS), default="resnet50")
    add(
        "--dtype",
        choices=["float32", "float64"],
        default="float32",
        help="of the pictures and so of all that is made of them",
    )
    add(
        "--use_fp16",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="mixed precision, in training with a dynamic loss scale",
    )
    add(
        "--use_xla",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="set use_xla_jit of the jobs, a knob without effect on results",
    )
    add("--channel_last", type=_bool, default=False, help="True: a network in NHWC, False: in NCHW")
    add(
        "--pad_output",
        type=_bool,
        nargs="?",
        const=True,
        default=False,
        help="give the pictures a fourth channel, of zeros",
    )
    add(
        "--fuse_bn_relu", type=_bool, default=False, help="batch normalisation and relu as one layer, named ..._bn_relu"
    )
    add(
        "--fuse_bn_add_relu",
        type=_bool,
        default=False,
        help="the same with the sum of a residual block, named ..._bn_add_relu",
    )
    add("--num_classes", type=int, default=1000)


def _add_data(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("data").add_argument
    add("--train_data_dir", default=None, help="OFRecord parts part-00000 ...; without it the data is synthetic")
    add("--train_data_part_num", type=int, default=256)
    add("--val_data_dir", default=None, help="without it training does not validate")
    add("--val_data_part_num", type=int, default=256)
    add("--num_examples", type=int, default=1281167, help="pictures of an epoch")
    add("--num_val_examples", type=int, default=50000)
    add("--batch_size_per_device", type=int, default=64)
    add("--val_batch_size_per_device", type=int, default=8)
    add("--image_size", type=int, default=None, help="width and height the network sees (224)")
    add(
        "--image-shape", "--image_shape", type=_ints, default=None, help="the same as channels,height,width (3,224,224)"
    )
    add("--resize_shorter", type=int, default=256, help="validation: the shorter side before the middle is cut out")
    add(
        "--input_layout",
        choices=["NHWC", "NCHW"],
        default="NHWC",
        help="how pictures come from the data; turned if the network's is not so",
    )
    add(
        "--rgb-mean",
        "--rgb_mean",
        type=_floats,
        default=(123.68, 116.779, 103.939),
        help="taken from the levels of a pixel",
    )
    add("--rgb-std", "--rgb_std", type=_floats, default=(58.393, 57.12, 57.375), help="which are then divided by this")
    add("--gpu_image_decoder", type=_bool, default=False, help="decoding on the GPU, which is not supported")


def _add_training(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("training").add_argument
    add("--num_epochs", type=int, default=90, help="of training; for evaluation, how often")
    add("--model_update", choices=["sgd", "momentum", "adam", "rmsprop"], default="sgd", help="sgd is without momentum")
    add(
        "--optimizer",
        dest="model_update",
        type=_later_name,
        default=argparse.SUPPRESS,
        help="the same in later scripts: sgd has momentum",
    )
    add("--learning_rate", type=float, default=0.256, help="the largest one")
    add(
        "--wd",
        type=float,
        default=1 / 32768,
        help="weight decay, beside the regularizers of the network; not of batch normalisation",
    )
    add("--mom", "--momentum", type=float, default=0.875, help="of --model_update=momentum")
    add("--lr_decay", choices=["cosine", "step", "polynomial", "exponential", "none"], default="cosine")
    add("--lr_decay_rate", type=float, default=0.94, help="of the exponential decay")
    add("--lr_decay_epochs", type=int, default=2, help="epochs in which the exponential decay falls to its rate")
    add("--warmup_epochs", type=int, default=5, help="the learning rate rises from 0 for so long")
    add("--decay_rate", type=float, default=0.9, help="of rmsprop")
    add("--epsilon", type=float, default=1.0, help="of rmsprop")
    add("--gradient_clipping", type=float, default=0.0, help="largest norm of all gradients; 0: any")
    add("--label-smoothing", "--label_smoothing", type=float, default=0.1)


def _add_files(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("files").add_argument
    stamp = datetime.now().strftime("%Y%m%d%H%M%S")
    add("--model_load_dir", default=None, help="a snapshot to go on from, to evaluate or to predict with")
    add("--model_save_dir", default=f"./output/snapshots/model_save-{stamp}")
    add("--save_epoch_interval", type=int, default=1, help="a snapshot after so many epochs")
    add(
        "--save_last",
        type=_bool,
        nargs="?",
        const=True,
        default=True,
        help="a snapshot after the last epoch, whatever the interval",
    )
    add("--save_init", type=_bool, nargs="?", const=True, default=True, help="a snapshot before the first step")
    add("--log_dir", default="./output", help="for summary.csv, loss.png and tensorboard/")
    add("--loss_print_every_n_iter", type=int, default=1)
    add("--image_path", default="test_img/tiger.jpg", help="inference: a picture, or a folder of pictures")
    add("--top_k", type=int, default=1, help=f"inference: lines for a picture, up to {LARGEST_TOP_K}")
    add(
        "--label_file",
        default=None,
        help="lines '<label>:<name>'; without it labels.txt beside the snapshots, or class numbers",
    )


def _bool(text: str) -> bool:
    if text.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if text.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in _words(text))


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in _words(text))


def _later_name(text: str) -> str:
    names = {"sgd": "momentum", "adam": "adam", "rmsprop": "rmsprop"}
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
    return names[text]


# ------------------------------------------------------------------ checks


def _settle_size(args: Arguments) -> None:
    """The size of pictures, from whichever of its two flags was given."""
    if args.image_shape is None:
        args.image_size = args.image_size or 224
        args.image_shape = (3, args.image_size, args.image_size)
    args.image_size = args.image_size or args.image_shape[-1]
    if args.image_shape != (3, args.image_size, args.image_size):
        shape = ",".join(map(str, args.image_shape))
        raise ValueError(f"--image-shape={shape} is not 3,size,size with the size {args.image_size} of --image_size")


def _check_sizes(args: Arguments) -> None:
    for name in ("gpu_num_per_node", "num_nodes", "batch_size_per_device", "val_batch_size_per_device"):
        _at_least(args, 1, name)
    for name in (
        "num_epochs",
        "num_examples",
        "num_val_examples",
        "num_classes",
        "train_data_part_num",
        "val_data_part_num",
    ):
        _at_least(args, 1, name)
    for name in ("save_epoch_interval", "loss_print_every_n_iter", "lr_decay_epochs", "top_k"):
        _at_least(args, 1, name)
    smallest = MODELS[args.model].smallest
    if args.image_size < smallest:
        raise ValueError(f"--image_size={args.image_size}: {args.model} takes pictures of {smallest} and more")
    if args.resize_shorter < args.image_size:
        raise ValueError(
            f"--resize_shorter={args.resize_shorter} is less than --image_size={args.image_size}, which is cut out of "
            f"it"
        )
    if args.num_val_steps < 1:
        raise ValueError(f"--num_val_examples={args.num_val_examples} is less than a batch of {args.val_batch_size}")
    if args.top_k > LARGEST_TOP_K:
        raise ValueError(f"--top_k={args.top_k} is more than {LARGEST_TOP_K}")


def _check_machines(args: Arguments) -> None:
    if args.num_nodes > len(args.node_ips):
        raise ValueError(
            f"--num_nodes={args.num_nodes}, but --node_ips names {len(args.node_ips)}: {', '.join(args.node_ips)}"
        )
    if not 0 < args.ctrl_port < 65536:
        raise ValueError(f"--ctrl_port={args.ctrl_port} is not a port")
    if args.gpu_image_decoder:
        raise ValueError("--gpu_image_decoder=True is not supported; pictures are decoded by threads of the CPU")


def _check_numbers(args: Arguments) -> None:
    for name in (
        "learning_rate",
        "wd",
        "mom",
        "warmup_epochs",
        "gradient_clipping",
        "nccl_fusion_threshold_mb",
        "nccl_fusion_max_ops",
    ):
        _at_least(args, 0, name)
    if not 0 <= args.label_smoothing < 1:
        raise ValueError(f"--label_smoothing={args.label_smoothing} is not from 0 to below 1")
    for name in ("rgb_mean", "rgb_std"):
        if len(getattr(args, name)) != 3:
            raise ValueError(f"--{name} is three numbers such as 123.68,116.779,103.939")
    if min(args.rgb_std) <= 0:
        raise ValueError("--rgb_std is above 0")
    if args.use_fp16 and args.dtype != "float32":
        raise ValueError(f"--use_fp16 goes with --dtype=float32, not with {args.dtype}")


def _check_folders(args: Arguments, program: str) -> None:
    if program == "train" and args.train_data_dir is not None:
        _check_parts("train_data", args.train_data_dir, args.train_data_part_num)
    if program in ("train", "evaluate") and args.val_data_dir is not None:
        _check_parts("val_data", args.val_data_dir, args.val_data_part_num)
    if args.model_load_dir is None and program != "train":
        raise ValueError("--model_load_dir is needed: a snapshot that of_cnn_train_val.py has saved")
    if args.model_load_dir is not None and not os.path.isdir(args.model_load_dir):
        raise ValueError(
            f"--model_load_dir={args.model_load_dir} is not a folder; give a snapshot that of_cnn_train_val.py has "
            f"saved"
        )
    if program in ("inference", "onnx") and not os.path.exists(args.image_path):
        raise ValueError(f"--image_path={args.image_path} does not exist")
    if args.label_file is not None and not os.path.isfile(args.label_file):
        raise ValueError(f"--label_file={args.label_file} is not a file")


def _check_parts(flag: str, folder: str, parts: int) -> None:
    for part in (PART.format(0), PART.format(parts - 1)):
        if not os.path.isfile(os.path.join(folder, part)):
            raise ValueError(
                f"--{flag}_dir={folder} has no file {part}; --{flag}_part_num={parts} of them are needed, part-00000 "
                f"and on"
            )


def _at_least(args: Arguments, least: int, name: str) -> None:
    if getattr(args, name) < least:
        raise ValueError(f"--{name}={getattr(args, name)} is less than {least}")
