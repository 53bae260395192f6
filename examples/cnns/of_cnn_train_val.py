"""Trains a network on OFRecord files or on synthetic data, validates it after each epoch, and saves snapshots.

sh train.sh                          synthetic data
python3 of_cnn_train_val.py --help   all flags
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import config
from config import Arguments
from job_function_util import configure_machines, job_config, logits_of
from metrics import Metric, RunLog
from ofrecord_util import for_network, load_for_training, load_for_validation, load_synthetic
from optimizer_util import make_optimizer
from snapshot import Snapshot, steps_done
from tqdm import tqdm

import oneflow as flow

Job = Callable[[], Any]


def make_jobs(args: Arguments) -> tuple[Job, Job]:
    @flow.global_function(type="train", function_config=job_config(args))
    def TrainNet():
        images, labels = load_for_training(args) if args.train_data_dir else load_synthetic(args, args.train_batch_size)
        logits = logits_of(for_network(images, args, args.input_layout), args)
        loss = cross_entropy(labels, logits, args)
        make_optimizer(args).minimize(loss)
        return {"loss": loss, "predictions": flow.nn.softmax(logits), "labels": labels}

    return TrainNet, make_validation_job(args)


def make_validation_job(args: Arguments) -> Job:
    @flow.global_function(type="predict", function_config=job_config(args))
    def InferenceNet():
        images, labels = load_for_validation(args) if args.val_data_dir else load_synthetic(args, args.val_batch_size)
        logits = logits_of(for_network(images, args, args.input_layout), args)
        return {"predictions": flow.nn.softmax(logits), "labels": labels}

    return InferenceNet


def cross_entropy(labels: Any, logits: Any, args: Arguments) -> Any:
    """The loss of each sample. Smoothing takes a part of the label's probability and spreads it over all classes."""
    if not args.label_smoothing:
        return flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="loss")
    off = args.label_smoothing / args.num_classes
    smooth = flow.one_hot(
        labels, args.num_classes, on_value=1 - args.label_smoothing + off, off_value=off, dtype=logits.dtype
    )
    return flow.nn.softmax_cross_entropy_with_logits(smooth, logits, name="loss")


def train(args: Arguments, jobs: tuple[Job, Job], snapshot: Snapshot, log: RunLog) -> None:
    """All epochs from the step that the snapshot stands at."""
    done, size = steps_done("TrainNet"), args.epoch_size
    with tqdm(total=args.num_epochs * size, initial=done, unit="iter", disable=not sys.stderr.isatty()) as bar:
        for epoch in range(done // size, args.num_epochs):
            first = done % size if epoch == done // size else 0
            train_epoch(jobs[0], Metric("train", epoch, args.loss_print_every_n_iter, log), range(first, size), bar)
            if args.val_data_dir:
                validate(jobs[1], Metric("validation", epoch, args.num_val_steps, log), args.num_val_steps)
            if is_saved(args, epoch):
                snapshot.save(f"epoch_{epoch}")


def train_epoch(train_net: Job, metric: Metric, steps: range, bar: Any) -> None:
    for step in steps:
        train_net().async_get(metric.callback(step))
        bar.update()


def validate(inference_net: Job, metric: Metric, steps: int) -> None:
    for step in range(steps):
        inference_net().async_get(metric.callback(step))


def is_saved(args: Arguments, epoch: int) -> bool:
    """Whether there is a snapshot after this epoch."""
    return (epoch + 1) % args.save_epoch_interval == 0 or (args.save_last and epoch + 1 == args.num_epochs)


def begin(args: Arguments) -> Snapshot:
    """A snapshot object with the variables drawn or restored. What could end the run badly later is looked for now."""
    snapshot = Snapshot(args.model_save_dir)
    if args.model_load_dir:
        snapshot.restore(args.model_load_dir)
    first = steps_done("TrainNet") // args.epoch_size
    if first >= args.num_epochs:
        sys.exit(
            f"{args.model_load_dir} has been trained for {first} epochs; give a larger --num_epochs than "
            f"{args.num_epochs} to go on"
        )
    for epoch in range(first, args.num_epochs):
        if is_saved(args, epoch) and os.path.exists(snapshot.path(f"epoch_{epoch}")):
            sys.exit(
                f"{snapshot.path(f'epoch_{epoch}')} exists and would be saved again; give another --model_save_dir"
            )
    if not args.model_load_dir:
        snapshot.initialise(args.save_init)
    snapshot.keep_labels(args.train_data_dir)
    return snapshot


def main() -> None:
    args = config.parse("train")
    config.print_args(args)
    configure_machines(args)
    jobs = make_jobs(args)
    snapshot = begin(args)
    log = RunLog(args.log_dir, args.model, args.epoch_size, *divmod(steps_done("TrainNet"), args.epoch_size))
    try:
        train(args, jobs, snapshot, log)
    finally:
        log.close()
    log.plot()


if __name__ == "__main__":
    main()
