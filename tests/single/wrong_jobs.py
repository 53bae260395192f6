"""What tests of mistakes are written with: a variable, an optimizer, and small jobs."""

import numpy as np

import oneflow as flow

X = np.zeros(2, np.float32)


def weight(name: str = "w", shape: tuple[int, ...] = (2,), **more):
    return flow.get_variable(name, shape, initializer=flow.ones_initializer(), **more)


def sgd(lr: float = 0.1, **more):
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [lr]), momentum=0, **more)


def identity_job():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        return x

    return job
