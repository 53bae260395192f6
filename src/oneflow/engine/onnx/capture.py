"""Modules and graphs as forward graphs, with names for what goes in and comes out."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from oneflow.engine.capture.forward_graph import Captured, forward_graph
from oneflow.engine.capture.stand_in import standing_in
from oneflow.engine.core.errors import ArgumentError, OneFlowError, UnsupportedError
from oneflow.engine.core.tree import tree_map
from oneflow.engine.onnx.aten.batch import FACTOR
from oneflow.engine.onnx.aten.builder import BatchSource
from oneflow.engine.onnx.modules import AnyBatch

Tensors = list[torch.Tensor]


class ForwardGraph(Protocol):
    """What a graph of modules must have to be exported."""

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """What is traced; its parameters name the inputs."""
        ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One step."""
        ...

    def forward_capture(self, *args: Any, **kwargs: Any) -> Captured:
        """The evaluation graph for arguments like these, of any shape that the modules take. An error if it trains."""
        ...

    def forward_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments like those it was last called with. An error if it never was."""
        ...


@dataclass(frozen=True)
class Source:
    """What is exported, and examples of its inputs. ``capture`` traces it with others in their places, ``run`` computes
    with them."""

    title: str
    examples: Tensors
    capture: Callable[[Tensors], Captured]
    run: Callable[[Tensors], Tensors]


def as_arguments(args: Any) -> tuple[Any, ...]:
    """A tuple holds all arguments; anything else is the only one."""
    return args if isinstance(args, tuple) else () if args is None else (args,)


@dataclass(frozen=True)
class Callee:
    """What is traced: a function of tensors, and the parameters and buffers that it reads. ``standing_in`` has others
    stand in for them while it runs; ``modules`` are those that it calls, by their paths."""

    title: str
    doc: str
    function: Callable[..., Any]
    constants: Mapping[str, torch.Tensor]
    standing_in: Callable[[dict[str, torch.Tensor]], AbstractContextManager[Any]]
    modules: Mapping[str, torch.nn.Module]


@dataclass(frozen=True)
class Arguments:
    """Arguments of one call. The tensors among them have names: those of their parameters, as ``x``, ``xs[0]`` or
    ``states['h']``."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str]
    tensors: Tensors

    def with_tensors(self, tensors: Tensors) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments with other tensors in place of these."""
        following = iter(tensors)
        return tree_map(
            lambda leaf: next(following) if isinstance(leaf, torch.Tensor) else leaf, (self.args, self.kwargs)
        )


def arguments_of(
    title: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Arguments:
    """The arguments of a call, in its order. Refuses those that the function does not take."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"{title}{signature} does not take the example arguments: {error}") from None
    found: list[tuple[str, Any]] = []
    for name, value in [*zip(_positional(signature, len(args)), args), *kwargs.items()]:
        _collect(name, value, found)
    tensors = [(name, value) for name, value in found if isinstance(value, torch.Tensor)]
    return Arguments(args, dict(kwargs), [name for name, _ in tensors], [value for _, value in tensors])


def _positional(signature: inspect.Signature, count: int) -> list[str]:
    """Names of so many positional arguments; ``xs[0]``, ``xs[1]`` for those of ``*xs``."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = [name for name, parameter in signature.parameters.items() if parameter.kind in kinds]
    rest = next(
        (
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL
        ),
        "",
    )
    return [*plain[:count], *(f"{rest}[{i}]" for i in range(count - len(plain)))]


def captured_call(callee: Callee, arguments: Arguments, tensors: Tensors) -> Captured:
    """The forward graph of a call with these tensors."""
    require_evaluation(callee)
    constants = dict(callee.constants)
    returned: list[str] = []

    def forward(*values: torch.Tensor) -> Tensors:
        args, kwargs = arguments.with_tensors(list(values[len(constants) :]))
        with callee.standing_in(dict(zip(constants, values))):
            outputs = _outputs(callee.function(*args, **kwargs), callee.title)
        returned[:] = outputs
        return list(outputs.values())

    graph, attributes = forward_graph(forward, [*constants.values(), *tensors], callee.modules)
    return Captured(
        graph, (*constants, *arguments.names), constants, tuple(returned), attributes, callee.title, callee.doc
    )


def require_evaluation(callee: Callee) -> None:
    """A model computes as modules do in evaluation."""
    training = [path for path, part in callee.modules.items() if part.training]
    if training:
        raise ArgumentError(
            f"{callee.title} is in training mode ({training[0] or 'the module itself'!r}), a model computes as in "
            f"evaluation; "
            "call .eval() on it first"
        )


def module_source(module: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None) -> Source:
    """A module with example arguments. It must be in evaluation mode."""
    title = type(module).__name__
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = {id(tensor): name for name, tensor in state.items()}
    callee = Callee(
        title,
        inspect.getdoc(type(module)) or title,
        module,
        state,
        lambda values: standing_in({"": module}, names, values),
        dict(module.named_modules()),
    )
    require_evaluation(callee)
    arguments = arguments_of(title, inspect.signature(module.forward), as_arguments(args), kwargs or {})

    def run(tensors: Tensors) -> Tensors:
        call_args, call_kwargs = arguments.with_tensors(tensors)
        with torch.no_grad():
            return list(_outputs(module(*call_args, **call_kwargs), title).values())

    return Source(title, arguments.tensors, lambda tensors: captured_call(callee, arguments, tensors), run)


def graph_source(graph: ForwardGraph, args: Any) -> Source:
    """A graph with example inputs, or with those that it was called with."""
    title = type(graph).__name__
    call_args, call_kwargs = (as_arguments(args), {}) if args is not None else graph.forward_inputs()
    arguments = arguments_of(title, inspect.signature(graph.build), call_args, call_kwargs)

    def capture(tensors: Tensors) -> Captured:
        args, kwargs = arguments.with_tensors(tensors)
        return graph.forward_capture(*args, **kwargs)

    def run(tensors: Tensors) -> Tensors:
        if [t.shape for t in tensors] != [t.shape for t in arguments.tensors]:  # a graph may be made for one shape
            found = capture(tensors)
            return found.run(dict(zip(found.inputs(), tensors, strict=True)))
        args, kwargs = arguments.with_tensors(tensors)
        return [value.detach() for value in _outputs(graph(*args, **kwargs), title).values()]

    return Source(title, arguments.tensors, capture, run)


def _collect(path: str, tree: Any, found: list[tuple[str, Any]]) -> None:
    if not isinstance(tree, (dict, list, tuple)):
        found.append((path, tree))
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        _collect(f"{path}[{key!r}]", value, found)


def _outputs(returned: Any, title: str) -> dict[str, torch.Tensor]:
    """The tensors that a call returned: keys of a dictionary are names, others are ``output``, ``output_0`` ... None is
    left out."""
    found: list[tuple[str, Any]] = []
    if isinstance(returned, dict):
        for key, value in returned.items():
            _collect(str(key), value, found)
    elif isinstance(returned, (list, tuple)):
        for i, value in enumerate(returned):
            _collect(f"output_{i}", value, found)
    else:
        found.append(("output", returned))
    wrong = [(name, value) for name, value in found if not isinstance(value, (torch.Tensor, type(None)))]
    if wrong:
        name, value = wrong[0]
        raise ArgumentError(
            f"{title} returns a {type(value).__name__} as {name!r}, a model gives tensors; "
            "return tensors in lists, tuples and dictionaries "
            "(models of transformers: use_cache=False)"
        )
    return {name: value for name, value in found if value is not None}


def renamed(captured: Captured, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> Captured:
    """With the names that the user gives; names of inputs and parameters must differ."""
    own = captured.inputs()
    inputs = own if input_names is None else _names("input_names", input_names, own)
    outputs = (
        captured.outputs
        if output_names is None
        else tuple(_names("output_names", output_names, list(captured.outputs)))
    )
    new = dict(zip(own, inputs))
    names = tuple(new.get(name, name) for name in captured.names)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ArgumentError(
            f"{captured.title} has two inputs or parameters called {twice[0]!r}, an ONNX model cannot; give input_names"
        )
    return replace(captured, names=names, outputs=outputs)


def _names(what: str, given: Sequence[str], own: list[str]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != len(own) or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(f"{what} has a name for each of {own}, got {given!r}")
    return names


def captured_for(source: Source, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> Captured:
    return renamed(source.capture(source.examples), input_names, output_names)


def captured_for_any_batch(
    source: Source, which: bool | Sequence[str], input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> tuple[Captured, AnyBatch]:
    """The graph for a batch of two or more, since one of one may be broadcast, and the same for twice as many."""
    first = source.capture(source.examples)
    names = renamed(first, input_names, output_names).inputs()
    batched = _batched(names, source.examples, which)
    least = source.examples[batched[0]].shape[0]
    times = 1 if least > 1 else FACTOR

    def traced(factor: int) -> Captured:
        tensors = [torch.cat([t] * factor) if i in batched else t for i, t in enumerate(source.examples)]
        return first if factor == 1 else _traced(source, tensors, batched, names)

    graphs = [renamed(traced(factor), input_names, output_names) for factor in (times, times * FACTOR)]
    return graphs[0], AnyBatch(graphs[1], least * times, BatchSource(names[batched[0]]))


def _traced(source: Source, tensors: Tensors, batched: list[int], names: list[str]) -> Captured:
    try:
        return source.capture(tensors)
    except (OneFlowError, RuntimeError, ValueError, IndexError) as error:
        raise UnsupportedError(
            f"dynamic_batch: {source.title} cannot be traced with batches of {tensors[batched[0]].shape[0]}: "
            f"{getattr(error, 'reason', error)}. "
            f"Name the inputs whose first dim is the batch, as dynamic_batch={[names[i] for i in batched][:1]}"
        ) from None


def _batched(names: list[str], examples: Tensors, which: bool | Sequence[str]) -> list[int]:
    """The numbers of the inputs whose first dim is the batch."""
    chosen = [name for name, t in zip(names, examples) if t.dim()] if isinstance(which, bool) else list(which)
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        raise ArgumentError(f"dynamic_batch names inputs whose first dim is the batch, of {names}; got {which!r}")
    found = [names.index(name) for name in chosen]
    sizes = {names[i]: examples[i].shape[:1].numel() if examples[i].dim() else None for i in found}
    if len(set(sizes.values())) > 1 or None in sizes.values() or 0 in sizes.values():
        raise ArgumentError(
            f"dynamic_batch: the first dims of the inputs differ: {sizes}; name those that have the batch, as "
            f"dynamic_batch={chosen[:1]}"
        )
    return found
