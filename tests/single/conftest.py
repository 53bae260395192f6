"""Fixtures that several test files of jobs on one device take."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from checkpoint_jobs import two_variables

import oneflow as flow
from oneflow.engine.core.errors import OneFlowError
from oneflow.engine.world import leave


@pytest.fixture
def error(request):
    """``with error(kind, pattern):`` the block raises that kind, and the message begins with the line marked ``# here``
    in the test."""
    source, start = inspect.getsourcelines(request.function)
    marked = [start + i for i, line in enumerate(source) if "# here" in line]

    @contextmanager
    def check(kind: type[Exception], pattern: str):
        with pytest.raises(kind, match=pattern) as caught:
            yield
        assert isinstance(caught.value, OneFlowError)
        assert any(str(caught.value).startswith(f"{request.path}:{line}: ") for line in marked), (
            f"{marked} in {caught.value}"
        )

    return check


@pytest.fixture
def saved(tmp_path) -> Path:
    """A checkpoint of "a" and "b", whose values then change in the running session."""
    two_variables()
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    flow.load_variables({"a": np.full((2, 3), 7, np.float32), "b": np.full(4, 8, np.float32)})
    return tmp_path / "saved"


@pytest.fixture
def as_rank(monkeypatch) -> Iterator[Callable[[int, int], None]]:
    """``as_rank(rank, size)`` makes this process one of those that a launcher has started."""

    def become(rank: int, size: int) -> None:
        leave()
        for name, value in {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29511}.items():
            monkeypatch.setenv(name, str(value))

    yield become
    leave()
