"""Test files as users of job functions wrote them run unchanged, by the names of either year, on one device and on
two."""

from __future__ import annotations

import os
import subprocess

import pytest
from warm_python import WARM

FILE = """
import unittest
from collections import OrderedDict

import numpy as np
{imports}


def compare(test_case, device_num, optimizer):
    flow.clear_default_session()
    flow.config.cpu_device_num(device_num)
    config = flow.FunctionConfig()
    config.default_data_type(flow.float)
    config.default_logical_view(flow.scope.consistent_view())

    @flow.global_function(type="train", function_config=config)
    def fit(x: tp.Numpy.Placeholder((8, 3)), y: tp.Numpy.Placeholder((8, 1))) -> tp.Numpy:
        with flow.scope.placement("cpu", "0:0-{{}}".format(device_num - 1)):
            w = flow.get_variable("w", shape=(3, 1), dtype=flow.float, initializer=flow.zeros_initializer())
            loss = flow.math.reduce_mean(flow.math.squared_difference(flow.matmul(x, w), y))
            optimizer().minimize(loss)
        return loss

    rng = np.random.RandomState(1)
    x = rng.randn(8, 3).astype(np.float32)
    y = x.dot(np.float32([[1], [-2], [3]]))
    w, found, expected = np.zeros((3, 1)), [], []
    for _ in range(5):
        found.append(fit(x, y).item())
        expected.append(((x.dot(w) - y) ** 2).mean())
        w = w - 0.1 * 2 * x.T.dot(x.dot(w) - y) / 8
    test_case.assertTrue(np.allclose(found, expected, rtol=1e-4))


def sgd():
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0)


@flow.unittest.skip_unless_1n1d()
class TestOnOne(flow.unittest.TestCase):
    def test_fit(test_case):
        arguments = OrderedDict(device_num=[1], optimizer=[sgd])
        compare(test_case, arguments["device_num"][0], arguments["optimizer"][0])

    def test_a_watched_gradient(test_case):
        @flow.global_function(type="train")
        def job(x: tp.Numpy.Placeholder((4, 5))) -> tp.Numpy:
            w = flow.get_variable("w", (4, 5), initializer=flow.ones_initializer())
            flow.watch_diff(w, lambda diff: test_case.assertTrue(np.array_equal(diff.numpy(), np.ones((4, 5)) * 2)))
            loss = flow.math.reduce_sum(w * 2 + x)
            sgd().minimize(loss)
            return loss

        test_case.assertEqual(job(np.zeros((4, 5), np.float32)).shape, (1,))


@flow.unittest.skip_unless_1n2d()
class TestOnTwo(flow.unittest.TestCase):
    def test_fit(test_case):
        compare(test_case, 2, sgd)


if __name__ == "__main__":
    unittest.main()
"""
IMPORTS = {
    "2020": "import oneflow as flow\nimport oneflow.typing as tp",
    "2021": "import oneflow.compatible.single_client.unittest\nfrom oneflow.compatible import single_client as flow\nfrom oneflow.compatible.single_client import typing as tp",
}


@pytest.mark.parametrize("year, devices", [("2020", 1), ("2021", 2)])
def test_a_test_file_runs_as_it_is(tmp_path, year: str, devices: int) -> None:
    path = tmp_path / "test_fit.py"
    path.write_text(FILE.format(imports=IMPORTS[year]), encoding="utf-8")
    environment = {**os.environ, "ONEFLOW_TEST_DEVICE_NUM": str(devices)}
    run = subprocess.run(
        [*WARM.command(), str(path), "-v"], capture_output=True, text=True, env=environment, timeout=120
    )
    assert run.returncode == 0, run.stderr
    ran, skipped = (3, 1) if devices == 1 else (3, 2)
    assert f"Ran {ran} tests" in run.stderr and f"OK (skipped={skipped})" in run.stderr, run.stderr
    assert f"needs ONEFLOW_TEST_DEVICE_NUM={3 - devices} on 1 machine, the run has {devices} on 1" in run.stderr


def test_files_of_functions_are_registered_by_the_machines_they_need(tmp_path) -> None:
    (tmp_path / "test_shapes.py").write_text(
        "import oneflow as flow\n\n\ndef test_one(test_case):\n    test_case.assertEqual(1, 1)\n\n\n"
        "@flow.unittest.num_nodes_required(2)\ndef test_two(test_case):\n    test_case.fail('needs two machines')\n",
        encoding="utf-8",
    )
    program = f"import unittest\nimport oneflow as flow\nflow.unittest.register_test_cases(globals(), {str(tmp_path)!r}, lambda nodes: nodes == 1)\nunittest.main()\n"
    (tmp_path / "all.py").write_text(program, encoding="utf-8")
    run = subprocess.run([*WARM.command(), str(tmp_path / "all.py"), "-v"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and "test_one (__main__.TestShapes" in run.stderr and "Ran 1 test" in run.stderr, (
        run.stderr
    )
