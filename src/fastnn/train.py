"""``python -m fastnn.train --flag=value ...``: trains a classifier as the flags say; ``--help`` lists them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import oneflow as flow
from fastnn import evaluate
from fastnn.checkpoints import RunState, StepCheckpointer
from fastnn.datasets import dataset_factory
from fastnn.errors import FlagError
from fastnn.flags import FLAGS, Flags
from fastnn.graphs import TrainGraph
from fastnn.models import model_factory
from fastnn.models.model_factory import NetworkFn
from fastnn.moving_average import MovingAverage
from fastnn.preprocessing import preprocessing_factory
from fastnn.trainer import ClassifierTrainer
from fastnn.utils import hooks_utils, misc_utils, optimizer_utils
from fastnn.utils.cluster_utils import join_workers
from fastnn.utils.dataset_utils import DatasetIterator, Share
from libai.engine.hooks import HookBase, PeriodicWriter, ProgressBar, StopOnSignal
from libai.utils.checkpoint import Checkpointer
from libai.utils.events import TensorboardXWriter
from oneflow.engine.core.errors import OneFlowError

_log = logging.getLogger("fastnn")


@dataclass
class Run:
    """The parts of a run, made from flags."""

    flags: Flags
    share: Share
    device: str
    network_fn: NetworkFn
    iterator: DatasetIterator
    average: MovingAverage | None


def main(
    argv: Sequence[str] | None = None, assignment: misc_utils.Assignment = misc_utils.get_assigment_map_from_checkpoint
) -> None:
    """The program. ``assignment`` takes the place of ``get_assigment_map_from_checkpoint``. A wrong flag, file or value
    ends it with one line."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--help" in words or "-h" in words:
        print(FLAGS.help("python -m fastnn.train"))
        return
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    _log.setLevel(logging.INFO)
    try:
        FLAGS.parse(words)
        train(FLAGS, assignment)
    except OneFlowError as error:
        sys.exit(f"fastnn: {error}")


def train(
    flags: Flags = FLAGS, assignment: misc_utils.Assignment = misc_utils.get_assigment_map_from_checkpoint
) -> None:
    """One run as the flags say, from the data to the last checkpoint."""
    run = prepared(flags, assignment)
    try:
        _train(run)
    finally:
        run.iterator.close()


def prepared(flags: Flags, assignment: misc_utils.Assignment) -> Run:
    """Workers, network, data and first values."""
    share = join_workers(flags)
    device = _device(flags)
    flow.manual_seed(flags.seed)
    if share.worker == 0:
        _say_precision(flags, device)
    network_fn = model_factory.get_model_fn(
        flags.model_name, flags.num_classes, flags.weight_decay, True, flags.train_image_size
    )
    iterator = dataset_factory.get_dataset_iterator(
        flags.dataset_name, network_fn.default_image_size, _preprocessing(flags), share=share, flags=flags
    )
    if flags.task_type == "finetune" and flags.model_dir:
        _restore(network_fn, flags, assignment)
    _place(network_fn, share, device)
    average = (
        MovingAverage(network_fn.module, flags.moving_average_decay) if flags.moving_average_decay is not None else None
    )
    return Run(flags, share, device, network_fn, iterator, average)


def _preprocessing(flags: Flags) -> Any:
    if flags.dataset_name == dataset_factory.MOCK:
        return None
    return preprocessing_factory.get_preprocessing(flags.preprocessing_name or flags.model_name, is_training=True)


def _restore(network_fn: NetworkFn, flags: Flags, assignment: misc_utils.Assignment) -> None:
    if not flags.ckpt_file_name:
        raise FlagError(
            f"--task_type=finetune --model_dir={flags.model_dir} needs --ckpt_file_name, the checkpoint in that folder"
        )
    exclude = (flags.checkpoint_exclude_scopes or "").split(",")
    misc_utils.restore(
        network_fn,
        str(Path(flags.model_dir) / flags.ckpt_file_name),
        exclude,
        flags.restore_moving_statistics,
        assignment,
    )


def _train(run: Run) -> None:
    flags = run.flags
    variables = misc_utils.trained_variables(run.network_fn, flags.trainable_scopes)
    optimizer = optimizer_utils.get_optimizer(variables.items(), flags)
    schedule = optimizer_utils.FlagSchedule(optimizer, flags)
    if run.share.workers > 1:
        flow.boxing.nccl.set_fusion_threshold_mbytes(max(1, flags.tensor_fusion_max_bytes >> 20))
    graph = TrainGraph(run.network_fn, optimizer, schedule, flags, run.device)
    state = RunState(run.iterator, flags)
    checkpointer = _checkpointer(run, graph, state)
    _tell(run, variables, optimizer)
    trainer = ClassifierTrainer(
        graph, run.iterator, schedule, run.share, run.device, flags.num_classes, state, run.average
    )
    if trainer.run(_hooks(run, checkpointer)) == 0 and run.share.worker == 0:
        _log.info(
            "nothing to train: step %d was the last; a larger --stop_at_step or --num_epochs goes on, --resume=False "
            "starts anew",
            state.step,
        )
    if flags.export_onnx:
        evaluate.export_onnx(run.network_fn, flags.export_onnx, run.share, run.average)


def _checkpointer(run: Run, graph: TrainGraph, state: RunState) -> StepCheckpointer | None:
    """What saves, with the newest checkpoint loaded; None without ``--checkpointDir``."""
    flags = run.flags
    if not flags.checkpointDir or flags.save_checkpoints_steps <= 0:
        return None
    _make_folder("checkpointDir", flags.checkpointDir)
    more: dict[str, Any] = {} if run.average is None else {"average": run.average}
    inner = Checkpointer(run.network_fn.module, flags.checkpointDir, graph=graph, run=state, **more)
    if flags.resume and inner.has_checkpoint():
        state.require_same_run(inner.get_checkpoint_file())
        inner.load(inner.get_checkpoint_file())
        if run.share.worker == 0:
            _log.info("going on after step %d from %s", state.step, inner.get_checkpoint_file())
    found = StepCheckpointer(
        inner, flags.save_checkpoints_steps, run.network_fn if flags.checkpoint_format == "tf" else None
    )
    found.adopt(state.step + 1)
    return found


def _make_folder(flag: str, folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FlagError(f"--{flag}={folder}: the folder cannot be made: {error.strerror}") from None


def _hooks(run: Run, checkpointer: StepCheckpointer | None) -> list[HookBase]:
    flags = run.flags
    hooks = hooks_utils.get_hooks(flags, run.share, checkpointer)
    if run.share.worker == 0:
        hooks.append(ProgressBar())
        where = flags.summaryDir or (str(Path(flags.checkpointDir) / "summaries") if flags.checkpointDir else None)
        if where and flags.log_loss_every_n_iters > 0:
            _make_folder("summaryDir", where)
            hooks.append(PeriodicWriter([TensorboardXWriter(where)], flags.log_loss_every_n_iters))
    if checkpointer is not None:
        hooks.append(StopOnSignal(checkpointer))
    return hooks


def _tell(run: Run, variables: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    flags = run.flags
    if run.share.worker:
        return
    if flags.print_model_statistics or flags.log_trainable_vars_statistics:
        misc_utils.print_variables("trainable variables", variables)
    if flags.log_optimizer_vars_statistics:
        rows = optimizer.update_of(optimizer.param_groups[0])[0].states  # type: ignore[attr-defined]
        misc_utils.print_variables(
            "variables of the optimizer",
            {f"{name}/{state.suffix}": p for name, p in variables.items() for state in rows},
        )
    if flags.log_device_placement:
        for name, p in variables.items():
            _log.info("%s: %s", name, p.placement if p.is_global else p.device)


def _device(flags: Flags) -> str:
    asked = flags.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if asked not in ("cpu", "cuda"):
        raise FlagError(f"--device is cpu or cuda, got {asked!r}")
    if asked == "cuda" and not torch.cuda.is_available():
        raise FlagError("--device=cuda, and there is no GPU that torch can use; leave it out")
    return asked


def _say_precision(flags: Flags, device: str) -> None:
    if flags.use_fp16 and device == "cpu" and not flags.cpu_bfloat16:
        _log.info(
            "use_fp16: a CPU computes in float32; --cpu_bfloat16 computes in bfloat16, --use_fp16=False says nothing"
        )


def _place(network_fn: NetworkFn, share: Share, device: str) -> None:
    """Several workers start from the variables of the first."""
    if device != "cpu":
        network_fn.module.to(device)
    if share.workers > 1:
        network_fn.module.to_global(flow.placement.all(device), flow.sbp.broadcast)  # type: ignore[operator]


if __name__ == "__main__":
    main()
