"""``flow.onnx.export``: one name for jobs, modules and graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.onnx.exporter import StrPath, export_job, opset_version
from oneflow.engine.onnx.packages import onnx_package

if TYPE_CHECKING:
    from oneflow.engine.capture.forward_graph import Captured
    from oneflow.engine.onnx.capture import Source


@entry
def export(
    job_func: Callable[..., Any] | torch.nn.Module | Any,
    model_save_dir: StrPath | Any = None,
    onnx_filename: StrPath | None = None,
    continue_on_error: bool = False,
    opset: int | None = None,
    extra_opset: Sequence[Any] | None = None,
    shape_override: Mapping[str, Sequence[int]] | None = None,
    external_data: bool = False,
    *,
    dynamic_batch: bool | Sequence[str] = False,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Writes a network with its weights as an ONNX model: ``export(job, checkpoint, path)``, ``export(module, args,
    path)`` or ``export(graph, args, path)``.

    Of a job, ``model_save_dir`` is a checkpoint that has its variables; None takes the values they have now. Of a
    module or an ``nn.Graph`` the second argument is a tensor or a tuple of arguments, as it is called with, and
    ``kwargs`` those by name; a graph that was called needs none. The module must be in evaluation mode.

    The model is checked by ONNX's checker, written beside ``onnx_filename`` and renamed, so a model of that name is
    replaced whole or not at all. ``opset`` is from 11 to 21, 17 by default. ``external_data`` puts the weights into
    ``<onnx_filename>.data``, as is done anyway for models of 2 GiB and more. ``dynamic_batch`` lets the model take any
    batch size; of a module or graph it may name the inputs whose first dim is the batch.

    For jobs only: ``shape_override`` exports for inputs of other shapes, by input name. An op that ONNX cannot express
    is an error; with ``continue_on_error`` it becomes an operator of the domain "oneflow" and a warning.
    ``extra_opset`` has no use. For modules and graphs only: ``input_names`` and ``output_names``, one for each tensor
    in order, instead of those of the parameters and keys.
    """
    if onnx_filename is None:
        raise ArgumentError("flow.onnx.export takes the path of the model as its third argument, got None")
    if not _is_traced(job_func):
        _require_none("a job", kwargs=kwargs, input_names=input_names, output_names=output_names)
        return export_job(
            job_func,
            model_save_dir,
            onnx_filename,
            continue_on_error,
            opset,
            extra_opset,
            shape_override,
            external_data,
            dynamic_batch=bool(dynamic_batch),
        )
    _require_none(
        "a module or graph",
        continue_on_error=continue_on_error or None,
        extra_opset=extra_opset,
        shape_override=shape_override,
    )
    export_traced(
        source_of(job_func, model_save_dir, kwargs),
        onnx_filename,
        opset,
        external_data,
        dynamic_batch,
        input_names,
        output_names,
    )


def export_traced(
    source: Source,
    path: StrPath,
    opset: int | None,
    external_data: bool,
    dynamic_batch: bool | Sequence[str],
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Captured:
    """Writes a module or graph, and returns its forward graph. What traces is loaded here, when something is
    exported."""
    from oneflow.engine.onnx.capture import captured_for, captured_for_any_batch
    from oneflow.engine.onnx.modules import export_graph

    version = opset_version(onnx_package("flow.onnx.export"), opset)
    any_batch = None
    if dynamic_batch is False:
        captured = captured_for(source, input_names, output_names)
    else:
        captured, any_batch = captured_for_any_batch(source, dynamic_batch, input_names, output_names)
    export_graph(captured, path, version, any_batch, external_data)
    return captured


def _is_traced(model: Any) -> bool:
    """Whether it is a module or a graph: those are traced by torch, jobs by us."""
    return isinstance(model, torch.nn.Module) or hasattr(type(model), "forward_capture")


def source_of(model: Any, args: Any, kwargs: Mapping[str, Any] | None) -> Source:
    """The ``Source`` of a module or graph with its example arguments."""
    from oneflow.engine.onnx.capture import graph_source, module_source

    if hasattr(type(model), "forward_capture"):
        _require_none("a graph", kwargs=kwargs)
        return graph_source(model, args)
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"a torch.nn.Module or an nn.Graph was expected, got {model!r}"[:300])
    return module_source(model, args, kwargs)


def _require_none(what: str, **options: Any) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ArgumentError(f"flow.onnx.export has no {given[0]} for {what}, got {options[given[0]]!r}; leave it out")
