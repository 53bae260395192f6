"""Snapshots of a run: begun from, restored, saved."""

from __future__ import annotations

import os
import shutil
import sys

from metrics import say

import oneflow as flow
from oneflow.errors import CheckpointError

LABELS = "labels.txt"


class Snapshot:
    """Saves under ``save_dir``. A snapshot is written beside and renamed, so one that is there is whole."""

    def __init__(self, save_dir: str) -> None:
        self._save_dir = save_dir
        self._check_point = flow.train.CheckPoint()

    def initialise(self, save: bool) -> None:
        """Draws the variables; ``save``: the first snapshot."""
        self._check_point.init()
        if save:
            self.save("initial_model")
        say("Init model on demand.")

    def restore(self, load_dir: str) -> None:
        """Weights, and for a train job its optimizer state, its step and where it read."""
        say(f"Restoring model from {load_dir}.")
        load(self._check_point, load_dir)

    def save(self, name: str) -> None:
        path = self.path(name)
        say(f"Saving model to {path}.")
        self._check_point.save(path)

    def path(self, name: str) -> str:
        return os.path.join(self._save_dir, f"snapshot_{name}")

    def keep_labels(self, data_dir: str | None) -> None:
        """Puts the data set's names of classes beside the snapshots, for programs that predict with them."""
        source = os.path.join(data_dir or "", LABELS)
        if data_dir is not None and os.path.isfile(source):
            os.makedirs(self._save_dir, exist_ok=True)
            shutil.copyfile(source, os.path.join(self._save_dir, LABELS))


def load(check_point: flow.train.CheckPoint, load_dir: str) -> None:
    """Ends the program with one message where the folder is no snapshot of this network."""
    try:
        check_point.load(load_dir)
    except CheckpointError as error:
        sys.exit(f"--model_load_dir={load_dir}: {error.reason}")


def steps_done(job: str) -> int:
    """How many steps the train job of that name has made, those before it was restored included."""
    return int(flow.get_all_variables()[f"System-Train-TrainStep-{job}"].numpy()[0])
