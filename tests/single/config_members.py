"""What tests of settings are written with."""

import inspect

import numpy as np

X = np.zeros(2, np.float32)


def line_of(test, mark: str = "# here") -> str:
    """File and line of the line of a test that is marked."""
    source, start = inspect.getsourcelines(test)
    return f"{inspect.getsourcefile(test)}:{start + next(i for i, text in enumerate(source) if mark in text)}"


def resolve(owner, dotted: str):
    for name in dotted.split("."):
        owner = getattr(owner, name)
    return owner
