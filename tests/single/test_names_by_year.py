"""The functions of jobs agree with the parameters that every release from August 2020 to March 2022 gave them.

``tests/names_by_year.json`` has the table: a name, and for each range of releases its parameters with their defaults
("..." where the default is a value of the API, not a literal).
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneflow as flow
from oneflow.compat.spellings import EARLIER, SPELLINGS
from oneflow.engine.core.errors import AbsentNameError, KeywordError
from oneflow.engine.core.sbp import BROADCAST

TABLE: dict[str, dict[str, str]] = json.loads((Path(__file__).parents[1] / "names_by_year.json").read_text())

# Defaults that differ and mean what the releases wrote out. So do names: what is given none gets that of its kind.
SAME_BY_NONE = {
    **dict.fromkeys(
        ("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"),
        {"data_format"},
    ),
    "layers.conv2d": {"dilation_rate"},
    "data.load_mnist": {"url", "hash_check", "out_dir"},
    "global_function": {"type"},
    "image.Resize": {"color_space", "interp_type"},
    "image.resize": {"color_space", "interp_type"},
    "nn.conv2d_transpose": {"strides"},
}


# Names that tensors have taken over with another meaning.
OF_TENSORS = {"device", "placement.current_scope"}


class Clip:
    """Stands for a gradient clipping in calls that are only read."""


Clip.__name__ = "ClipByGlobalNorm"


def found(name: str) -> Any:
    value: Any = flow
    for part in name.split("."):
        value = getattr(value, part)
    value = vars(value).get("of_job", value) if inspect.isfunction(value) else value
    return value._of_job if isinstance(value, type) and "_of_job" in vars(value) else value


def parameters(text: str) -> dict[str, Any]:
    """The parameters of one release, each with its default: ``inspect.Parameter.empty`` for none, ``...`` for one that
    is no literal."""
    arguments = ast.parse(f"def f({text}): pass").body[0].args  # type: ignore[attr-defined]
    if arguments.vararg or arguments.kwarg:
        return {}
    none = [inspect.Parameter.empty] * (len(arguments.args) - len(arguments.defaults))
    return dict(zip((a.arg for a in arguments.args), [*none, *map(ast.literal_eval, arguments.defaults)]))


FORMS = [
    (name, release, parameters(text))
    for name, releases in TABLE.items()
    for release, text in releases.items()
    if parameters(text)
    and name not in OF_TENSORS
    and not name.startswith(("config.", "env."))  # settings take one value by any name
]


def problems(check: Callable[[str, dict[str, Any]], None]) -> dict[str, str]:
    """What ``check`` finds wrong with any signature of any release."""
    wrong = {}
    for name, release, given in FORMS:
        try:
            check(name, given)
        except AbsentNameError:
            continue  # refused by name
        except (AssertionError, TypeError, KeyError, AttributeError, ValueError) as error:
            wrong[f"{name} in {release}"] = str(error)
    return wrong


def bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The present parameter of each argument of a call that is not made."""
    own = function.__init__ if isinstance(function, type) else function
    reader = vars(own).get("arguments_of_any_year") if hasattr(own, "__dict__") else None
    if reader is not None:
        first = (None,) if isinstance(function, type) else ()
        args, kwargs = reader((*first, *args), kwargs)
        args = args[len(first) :] if args else args
        kwargs.pop("self", None)
    return inspect.signature(function).bind(*args, **kwargs).arguments


def example(name: str, default: Any) -> Any:
    """A value of the kind that a parameter takes, told by its name and default."""
    if name in ("name", "data_format", "direction", "tag", "color_space", "interp_type") or isinstance(default, str):
        return f"some {name}"
    if name == "grad_clipping":
        return Clip()
    if name == "distribute":
        return BROADCAST
    if isinstance(default, bool):
        return True
    if name in ("axis", "k", "diagonal", "loss_scale_factor") or isinstance(default, (int, float)):
        return 1
    return np.zeros((2, 3, 4, 5)) if default is inspect.Parameter.empty else None


def test_every_name_is_there_or_says_why_not() -> None:
    bare = []
    for name in sorted(TABLE.keys() - OF_TENSORS):
        try:
            found(name)
        except AbsentNameError as error:
            assert len(str(error).splitlines()) == 1 and " is not there: " in str(error)
        except AttributeError:
            bare.append(name)
    assert not bare


def test_settings_take_their_value_by_place_and_by_name() -> None:
    for name in (
        "nccl_use_compute_stream",
        "disable_group_boxing_by_dst_parallel",
        "enable_mem_chain_merge",
        "enable_debug_mode",
    ):
        assert getattr(flow.config, name)(True) is getattr(flow.config, name)(val=False) is True
    for name in ("enable_cudnn_conv_pseudo_half", "cudnn_conv_enable_pseudo_half", "enable_fuse_add_to_output"):
        config = flow.function_config()
        getattr(config, name)(True), getattr(config, name)(val=False), getattr(config, name)()


def test_a_library_of_ops_is_not_loaded_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    assert flow.config.load_library_now("libops.so") is True
    assert (
        capfd.readouterr().err
        == "oneflow: flow.config.load_library_now('libops.so') loads nothing: there are no ops in C++\n"
    )


def test_keywords_of_every_year_are_taken() -> None:
    def check(name: str, given: dict[str, Any]) -> None:
        arguments = bound(found(name), (), {key: example(key, default) for key, default in given.items()})
        assert len(arguments) == len(given), "two keywords mean one parameter"

    assert problems(check) == {}


def test_positions_of_every_year_mean_the_same() -> None:
    def check(name: str, given: dict[str, Any]) -> None:
        function, keys = found(name), list(given)
        values = [example(key, default) for key, default in given.items()]
        places = bound(function, (), dict(zip(keys, range(len(keys)))))
        names = sorted(places, key=places.__getitem__)
        for count in range(1, len(keys) + 1):
            needs_more = any(given[key] is inspect.Parameter.empty for key in keys[count:])
            if needs_more or (
                name == "math.top_k" and count == 2
            ):  # two arguments are told apart by the rank of the blob, see below
                continue
            by_place = bound(function, tuple(values[:count]), {})
            assert set(by_place) == set(names[:count]), f"{count} positional arguments are {list(by_place)}"
            assert all(by_place[key] is value for key, value in zip(names[:count], values)), (
                f"{count} positional arguments have other places"
            )

    assert problems(check) == {}


def test_defaults_of_every_year_are_ours() -> None:
    def check(name: str, given: dict[str, Any]) -> None:
        present = inspect.signature(found(name)).parameters
        for key, default in given.items():
            ours = present[SPELLINGS.get(name, {}).get(key, key) if key not in present else key].default
            means_the_same = key == "name" or key in SAME_BY_NONE.get(name, ())
            if default is inspect.Parameter.empty or default is ... or means_the_same:
                continue
            expected = tuple(default) if isinstance(default, list) else default
            assert ours == expected, f"{key} is {ours!r}, was {expected!r}"

    assert problems(check) == {}


def traced(body: Callable[[Any], Any], shape: tuple[int, ...]) -> np.ndarray:
    flow.clear_default_session()

    @flow.global_function()
    def job(x=flow.FixedTensorDef(shape)):
        return body(x)

    return job(np.random.default_rng(1).normal(size=shape).astype(np.float32)).get().numpy()


def test_years_are_told_apart_by_what_is_passed() -> None:
    """Each pair is one call as it was written in 2020 and as it is written by name."""
    matrix, square = (3, 5), (3, 3)
    pairs: list[tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[int, ...]]] = [
        (lambda x: flow.sort(x, "DESCENDING"), lambda x: flow.sort(x, direction="DESCENDING"), matrix),
        (lambda x: flow.argsort(x, "DESCENDING", "order"), lambda x: flow.argsort(x, direction="DESCENDING"), matrix),
        (lambda x: flow.math.top_k(x, 3), lambda x: flow.math.top_k(x, k=3), matrix),
        (lambda x: flow.math.top_k(x, 0), lambda x: flow.math.top_k(x, axis=0), matrix),
        (lambda x: flow.math.top_k(x, 2, False), lambda x: flow.math.top_k(x, k=2), matrix),
        (lambda x: flow.math.top_k(x, 0, 2), lambda x: flow.math.top_k(x, k=2, axis=0), matrix),
        (lambda x: flow.math.top_k(x, 1), lambda x: flow.math.top_k(x, k=1), matrix),
        (lambda x: flow.matmul(x, x, False, True, "product"), lambda x: flow.matmul(x, x, transpose_b=True), square),
        (lambda x: flow.transpose(x, [1, 0], False, "turned"), lambda x: flow.transpose(x, perm=[1, 0]), matrix),
        (lambda x: flow.math.tril(x, 1, "lower"), lambda x: flow.math.tril(x, diagonal=1), square),
        (lambda x: flow.math.argmax(x, "best"), lambda x: flow.math.argmax(x, axis=-1), matrix),
    ]
    for then, now, shape in pairs:
        np.testing.assert_array_equal(traced(then, shape), traced(now, shape))


def test_convolutions_and_upsampling_of_two_years() -> None:
    def filters() -> Any:
        return flow.get_variable("w", (2, 3, 3, 3), initializer=flow.random_normal_initializer(), random_seed=1)

    shape = (2, 3, 6, 6)
    by_name = traced(
        lambda x: flow.nn.conv2d(x, filters(), strides=1, padding="VALID", data_format="NCHW", dilations=2), shape
    )
    np.testing.assert_array_equal(
        traced(lambda x: flow.nn.conv2d(x, filters(), 1, "VALID", None, "NCHW", 2), shape), by_name
    )
    np.testing.assert_array_equal(traced(lambda x: flow.nn.conv2d(x, filters(), 1, "VALID", "NCHW", 2), shape), by_name)
    bilinear = traced(lambda x: flow.layers.upsample_2d(x, 2, data_format="NCHW", interpolation="bilinear"), shape)
    np.testing.assert_array_equal(traced(lambda x: flow.layers.upsample_2d(x, 2, "NCHW", "bilinear"), shape), bilinear)
    np.testing.assert_array_equal(
        traced(lambda x: flow.layers.upsample_2d(x, 2, False, "NCHW", "bilinear"), shape), bilinear
    )


def test_an_unknown_or_doubled_keyword_says_so() -> None:
    with pytest.raises(
        KeywordError,
        match=r"test_names_by_year.py:\d+: math.reduce_sum has no argument 'input_tensr'. Did you mean 'input_tensor'\?",
    ):
        flow.math.reduce_sum(input_tensr=1)
    with pytest.raises(TypeError, match="squeeze was given 'x' twice, once as 'input'"):
        flow.squeeze.of_job(x=1, input=2)
    with pytest.raises(KeywordError, match="sort was given 'direction' twice, by its place and by its name"):
        flow.sort.of_job(1, "DESCENDING", direction="ASCENDING")
    with pytest.raises(KeywordError, match="sort takes x, direction, name in this order, got 4 positional"):
        flow.sort.of_job(1, "DESCENDING", "name", 3)


def test_every_row_of_the_tables_is_of_a_function_that_reads_it() -> None:
    for name in {*SPELLINGS, *EARLIER}:
        function = found(name)
        own = function.__init__ if isinstance(function, type) else function
        assert "arguments_of_any_year" in vars(own), name
        present = inspect.signature(own).parameters
        assert {*SPELLINGS.get(name, {}).values()} <= set(present), name
        assert name not in EARLIER or set(EARLIER[name].names) <= set(present), name
