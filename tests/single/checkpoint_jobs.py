"""What tests of checkpoints are written with."""

from pathlib import Path

import numpy as np

import oneflow as flow


def variables() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def two_variables(a_shape=(2, 3), b_dtype=flow.float32):
    """A job with variables "a" and "b"."""

    @flow.global_function()
    def job():
        a = flow.get_variable("a", a_shape, initializer=flow.random_normal_initializer())
        b = flow.get_variable("b", (4,), b_dtype, flow.constant_initializer(1, b_dtype), trainable=False)
        return a, b

    return job


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
