"""Tells how often a snapshot is right on the validation records, or on synthetic data.

sh evaluate.sh
"""

from __future__ import annotations

import config
from job_function_util import configure_machines
from metrics import Metric
from of_cnn_train_val import make_validation_job, validate
from snapshot import Snapshot


def main() -> None:
    args = config.parse("evaluate")
    config.print_args(args)
    configure_machines(args)
    inference_net = make_validation_job(args)
    Snapshot(args.model_save_dir).restore(args.model_load_dir)
    for _ in range(args.num_epochs):
        validate(inference_net, Metric("validation", 0, args.num_val_steps), args.num_val_steps)


if __name__ == "__main__":
    main()
