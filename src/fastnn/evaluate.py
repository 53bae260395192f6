"""``python -m fastnn.evaluate --flag=value ...``: Accuracy and Recall_5 of a checkpoint; and the trained network as an
ONNX file."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import oneflow as flow
from fastnn.datasets import dataset_factory
from fastnn.errors import FlagError
from fastnn.flags import FLAGS, Flags
from fastnn.graphs import EvalGraph
from fastnn.models import model_factory
from fastnn.models.model_factory import NetworkFn
from fastnn.moving_average import MovingAverage
from fastnn.preprocessing import preprocessing_factory
from fastnn.utils import misc_utils
from fastnn.utils.dataset_utils import DatasetIterator, Share, require_labels
from libai.utils.checkpoint import LAST
from libai.utils.progress import terminal_bar
from oneflow.engine.core.errors import OneFlowError

_log = logging.getLogger("fastnn")


def main(argv: Sequence[str] | None = None) -> None:
    """The program: prints the two numbers. The checkpoint is the newest of ``--checkpointDir``, or ``--model_dir`` and
    ``--ckpt_file_name``."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--help" in words or "-h" in words:
        print(FLAGS.help("python -m fastnn.evaluate"))
        return
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    _log.setLevel(logging.WARNING)
    try:
        FLAGS.parse(words)
        results = evaluate(FLAGS)
    except OneFlowError as error:
        sys.exit(f"fastnn: {error}")
    for name, value in results.items():
        print(f"{name}[{value:.6f}]")


def evaluate(flags: Flags = FLAGS) -> dict[str, float]:
    """``Accuracy`` and ``Recall_5`` over the evaluation files of the data set, every record once."""
    network_fn = model_factory.get_model_fn(flags.model_name, flags.num_classes, image_size=flags.train_image_size)
    path = checkpoint_path(flags)
    misc_utils.restore(network_fn, path, require_all=True)
    average = Path(path) / "average"
    if flags.moving_average_decay is not None and average.is_dir():
        network_fn.module.load_state_dict(flow.load(average), strict=False)
    preprocessing = preprocessing_factory.get_preprocessing(
        flags.preprocessing_name or flags.model_name, is_training=False
    )
    iterator = dataset_factory.get_dataset_iterator(
        flags.dataset_name, network_fn.default_image_size, preprocessing, is_training=False, flags=flags
    )
    if iterator.steps is None:
        raise FlagError("--dataset_name=mock has no end; evaluate on a data set with files")
    with contextlib.closing(iterator):
        return _counted(network_fn, iterator, flags)


def checkpoint_path(flags: Flags) -> str:
    """The checkpoint that the flags mean."""
    if flags.model_dir and flags.ckpt_file_name:
        return str(Path(flags.model_dir) / flags.ckpt_file_name)
    if not flags.checkpointDir:
        raise FlagError(
            "--checkpointDir names the folder of the run's checkpoints, or --model_dir and --ckpt_file_name one "
            "checkpoint; none is set"
        )
    try:
        return str(Path(flags.checkpointDir) / (Path(flags.checkpointDir) / LAST).read_text(encoding="utf-8").strip())
    except OSError:
        raise FlagError(
            f"--checkpointDir={flags.checkpointDir} has no checkpoint: there is no file {LAST!r} in it"
        ) from None


def _counted(network_fn: NetworkFn, iterator: DatasetIterator, flags: Flags) -> dict[str, float]:
    network_fn.module.eval()
    graph = EvalGraph(network_fn, flags, "cpu")
    right = near = count = 0
    bar = terminal_bar(iterator.steps or 0)
    for images, labels in iterator:
        require_labels(labels, flags.num_classes)
        best = graph(images).topk(min(5, flags.num_classes)).indices
        hits = best == labels[:, None]
        right += int(hits[:, 0].sum())
        near += int(hits.any(1).sum())
        count += len(labels)
        if bar is not None:
            bar.update(1)
    if bar is not None:
        bar.close()
    return {"Accuracy": right / count, "Recall_5": near / count}


def export_onnx(network_fn: NetworkFn, path: str, share: Share, average: MovingAverage | None) -> None:
    """Writes the network in evaluation mode: input ``images`` (NHWC, any batch), output ``logits``. All workers call
    it; the first one writes."""
    if share.workers > 1:
        network_fn.module.to_local()  # type: ignore[operator]
    if share.worker:
        return
    module = _Logits(network_fn)
    module.eval()
    size = network_fn.default_image_size
    with contextlib.nullcontext() if average is None else average.applied():
        flow.onnx.export(module, torch.zeros(2, size, size, 3), path, dynamic_batch=True)


class _Logits(torch.nn.Module):
    """The network without its end points."""

    def __init__(self, network_fn: NetworkFn) -> None:
        super().__init__()
        self.network = network_fn.module
        self._network_fn = network_fn

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self._network_fn(images)[0]


if __name__ == "__main__":
    main()
