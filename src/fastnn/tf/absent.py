"""The error for a name of TensorFlow's that is not among its words here."""

from __future__ import annotations

from collections.abc import Sequence

from oneflow.engine.core.errors import AbsentNameError, nearest


def absent(name: str, there: Sequence[str]) -> AbsentNameError:
    """The error of a name that ``fastnn.tf`` has not."""
    hint = nearest(name.rsplit(".", 1)[-1], there)
    return AbsentNameError(
        f"{name} is not among the words of TensorFlow that fastnn.tf has.{hint} They are {', '.join(there)}; install "
        f"TensorFlow to use the others"
    )
