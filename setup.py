"""Builds the optional C extensions; everything else about the package is in pyproject.toml.

Where there is no C compiler, or libjpeg-turbo has no headers, the package is installed without them.
"""

from glob import glob

from setuptools import Extension, setup

_headers = sorted(glob("src/oneflow/ops/native/*.h"))

setup(
    ext_modules=[
        Extension(
            "oneflow.data.image.native._jpeg",
            sources=["src/oneflow/data/image/native/_jpeg.c"],
            libraries=["jpeg"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "oneflow.ops.native._fused",
            sources=["src/oneflow/ops/native/_fused.c"],
            depends=_headers,
            extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
            extra_link_args=["-fopenmp"],
            optional=True,
        ),
        Extension(
            "oneflow.ops.native._winograd",
            sources=["src/oneflow/ops/native/_winograd.c"],
            depends=_headers,
            extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
            extra_link_args=["-fopenmp"],
            optional=True,
        ),
        Extension(
            "oneflow.ops.native._conv",
            sources=["src/oneflow/ops/native/_conv.c"],
            depends=_headers,
            extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
            extra_link_args=["-fopenmp"],
            optional=True,
        ),
        Extension(
            "oneflow.ops.native._update",
            sources=["src/oneflow/ops/native/_update.c"],
            depends=_headers,
            extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"],
            extra_link_args=["-fopenmp"],
            optional=True,
        ),
        Extension(
            "oneflow.ops.native._heap",
            sources=["src/oneflow/ops/native/_heap.c"],
            extra_compile_args=["-O3", "-fexceptions"],  # torch's errors pass through
            optional=True,
        ),
        Extension(
            "oneflow.ops.native._watch",
            sources=["src/oneflow/ops/native/_watch.c"],
            extra_compile_args=["-O3", "-fexceptions"],
            optional=True,
        ),
    ]
)
