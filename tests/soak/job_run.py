"""Runs random jobs on one device and on several, and compares.

Programs run in groups: each number of devices has one session for all jobs of a group, since starting workers takes
longer than a small job.

As a program its argument is a JSON object: ``seeds`` (the first, and the one behind the last), ``seconds`` and
``without``; or one ``program`` or ``seed``, and whether it is to be reduced (``reduces``) and ends the process
(``crashes``). It prints a JSON line per job.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from job_program import CLASSES, JobProgram, draw_program, names_for_optimizer, train_job
from program import Unfit, Verdict, reduced

import oneflow as flow

Results = dict[str, np.ndarray]
DEVICES = (2, 4)
GROUP = 8
NOISE = {True: 1e-12, False: 1e-6}
TOLERANCE = {True: 1e-8, False: 1e-4}
UNSTABLE = {True: 1e-5, False: 1e-2}
"""By whether a program computes in float64: relative changes of inputs by which its conditioning is measured, the least
tolerance, and the conditioning from which on nothing is compared."""


def batches(program: JobProgram, noise: float = 0.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns inputs and labels of each step. ``noise`` changes inputs by relative amounts of that size."""
    draw, other = np.random.default_rng(program.seed), np.random.default_rng(program.seed + 1)
    samples, made = program.batch * program.micro_batches, []
    for _ in range(program.steps):
        x = draw.standard_normal((samples, *program.start))
        y = draw.integers(CLASSES, size=samples).astype(np.int32)
        x = x * (1.0 + noise * other.standard_normal(x.shape))
        made.append((x.astype(np.float64 if program.is_double else np.float32), y))
    return made


def begin(devices: int) -> None:
    """Starts a session with so many devices."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)


def train(program: JobProgram, devices: int, names: list[str], noise: float = 0.0) -> Results:
    """Trains a job in the current session; returns its results and its variables."""
    job, results = train_job(program, devices, names), {}
    for step, (x, y) in enumerate(batches(program, noise)):
        for name, value in zip(("loss", "scores", "middle"), job(x, y).get()):
            results[f"{name} of step {step}"] = value.numpy().copy()
    for name, variable in flow.get_all_variables().items():
        if name.startswith(f"{program.prefix}_"):
            results[f"variable {name}"] = variable.numpy().copy()
    return results


def compare(found: Results, expected: Results) -> tuple[float, str]:
    """Returns the largest difference, relative to the scale of the value it occurs in, and its name."""
    if found.keys() != expected.keys():
        return float("inf"), f"there are other variables: {sorted(found.keys() ^ expected.keys())}"
    worst = (0.0, "")
    for name, value in expected.items():
        if found[name].shape != value.shape:
            return float("inf"), f"{name} has shape {found[name].shape} instead of {value.shape}"
        if value.size:
            difference = np.abs(found[name].astype(np.float64) - value).max() / max(np.abs(value).max(), 1e-2)
            worst = max(worst, (float(difference) if np.isfinite(difference) else float("inf"), name))
    return worst


Attempt = Results | Exception


def train_all(programs: Sequence[JobProgram], devices: int, noisy: bool = False) -> list[Attempt]:
    """Trains programs in one session, or in a new one after an error."""
    attempts: list[Attempt] = []
    names = {program.seed: names_for_optimizer(program) for program in programs}
    begin(devices)
    for program in programs:
        _print({"begun": program.seed, "program": program.to_json()})
        try:
            attempts.append(train(program, devices, names[program.seed], NOISE[program.is_double] if noisy else 0.0))
        except Exception as error:
            attempts.append(error)
            begin(devices)
    return attempts


def verdict_of(program: JobProgram, alone: Attempt, noisy: Attempt, several: Sequence[Attempt]) -> Verdict:
    """Compares what a program gives on one device, on one with noise, and on several."""
    seed, is_double = program.seed, program.is_double
    if isinstance(alone, Exception):
        return Verdict(seed, "invalid", f"{type(alone).__name__}: {alone}"[:300])
    if not all(np.isfinite(value).all() for value in alone.values()):
        return Verdict(seed, "invalid", "not finite")
    for devices, attempt in zip(DEVICES, several):
        if isinstance(attempt, Exception):
            return Verdict(seed, "error", f"on {devices} devices: {type(attempt).__name__}: {attempt}"[:600])
    sensitivity = float("inf") if isinstance(noisy, Exception) else compare(noisy, alone)[0]
    if sensitivity > UNSTABLE[is_double]:
        return Verdict(seed, "unstable", "", sensitivity)
    tolerance = max(TOLERANCE[is_double], 10 * sensitivity)
    compared = [(compare(attempt, alone), devices) for devices, attempt in zip(DEVICES, several)]
    (difference, name), devices = max(compared)
    status = "same" if difference <= tolerance else "different"
    return Verdict(seed, status, f"on {devices} devices: {name}", difference, tolerance)


def check_all(programs: Sequence[JobProgram]) -> list[Verdict]:
    """Runs programs on one device and on several."""
    alone, noisy = train_all(programs, 1), train_all(programs, 1, noisy=True)
    for attempt in alone:
        if isinstance(attempt, Unfit):
            raise attempt
    several = [train_all(programs, devices) for devices in DEVICES]
    flow.clear_default_session()
    return [verdict_of(*each[:3], each[3:]) for each in zip(programs, alone, noisy, *several)]


def reduce_program(program: JobProgram, crashes: bool) -> JobProgram:
    """Returns the smallest program that fails as a program does. Where that ends the process, none that survives does;
    who started this begins again with the one that did not."""
    status = "" if crashes else check_all([program])[0].status

    def fails(other: JobProgram) -> bool:
        try:
            return check_all([other])[0].status == status
        except Unfit:
            return False

    return reduced(program, fails)


def _print(line: dict[str, Any]) -> None:
    if __name__ == "__main__":
        print(json.dumps(line), flush=True)


def report(verdict: Verdict, program: JobProgram) -> None:
    """Prints a line of what a program has given."""
    _print({**dataclasses.asdict(verdict), "program": program.to_json()})


def main(order: dict[str, Any]) -> None:
    """Runs the programs of an order."""
    without = frozenset(order["without"])
    if "seeds" not in order:
        text = order["program"]
        program = JobProgram.from_json(text) if text else draw_program(order["seed"], without)
        if order["reduces"]:
            program = reduce_program(program, order["crashes"])
        crashed = Verdict(program.seed, "error", "the process ends or hangs")
        report(crashed if order["crashes"] else check_all([program])[0], program)
        return
    end = time.monotonic() + order["seconds"]
    low, high = order["seeds"]
    while low < high and time.monotonic() < end:
        seeds = range(low, min(high, low + GROUP))
        programs = [draw_program(seed, without) for seed in seeds]
        for verdict, program in zip(check_all(programs), programs):
            report(verdict, program)
        low = seeds.stop


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
