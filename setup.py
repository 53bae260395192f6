"""Builds the optional C extensions; everything else about the package is in pyproject.toml.

Without a C compiler, or without libjpeg-turbo's headers, the package is installed without them. ONEFLOW_PURE=1 builds
none of them: the wheel is then pure Python and runs on every platform.
"""

import os
from glob import glob

from setuptools import Extension, setup

_headers = sorted(glob("src/oneflow/engine/ops/native/*.h"))


def kernels(name: str) -> Extension:
    """An extension of loops that threads share out."""
    return Extension(
        f"oneflow.engine.ops.native.{name}",
        sources=[f"src/oneflow/engine/ops/native/{name}.c"],
        depends=_headers,
        extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
        extra_link_args=["-fopenmp"],
        optional=True,
    )


def extensions() -> list[Extension]:
    """All extensions, or none for a pure-Python build."""
    if os.environ.get("ONEFLOW_PURE", "0") not in ("", "0"):
        return []
    return [
        Extension(
            "oneflow.engine.data.image.native._jpeg",
            sources=["src/oneflow/engine/data/image/native/_jpeg.c"],
            libraries=["jpeg"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        *map(kernels, ("_fused", "_winograd", "_conv", "_update")),
    ]


setup(ext_modules=extensions())
