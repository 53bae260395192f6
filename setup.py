"""Builds the optional C extensions; everything else about the package is in pyproject.toml.

Where there is no C compiler, or libjpeg-turbo has no headers, the package is installed without them.
"""

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


setup(
    ext_modules=[
        Extension(
            "oneflow.engine.data.image.native._jpeg",
            sources=["src/oneflow/engine/data/image/native/_jpeg.c"],
            libraries=["jpeg"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        *map(kernels, ("_fused", "_winograd", "_conv", "_update")),
    ]
)
