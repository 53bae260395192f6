"""What tests of job functions are written with: small arrays, one variable, plain gradient descent."""

import numpy as np

import oneflow as flow


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def train_config(lr: float = 0.1) -> flow.FunctionConfig:
    made = flow.function_config()
    made.train.primary_lr(lr)
    made.train.model_update_conf({"naive_conf": {}})
    return made


def weight(init: float = 1.0, name: str = "w"):
    return flow.get_variable(name, (1,), initializer=flow.constant_initializer(init))


def value(name: str = "w") -> np.ndarray:
    return flow.get_all_variables()[name].numpy()
