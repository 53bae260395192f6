"""The joint graph of a step that a user wrote with tensors and modules: its function runs once, on tensors without
data.

Forward and backward become one graph of aten ops, as ``joint.py`` makes one of a job. Whatever torch can trace may
stand in the function, modules written for PyTorch too. What is traced once stands for every step, so a value cannot be
looked at while it is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.overrides import TorchFunctionMode

from oneflow.engine.capture.cleanup import is_random
from oneflow.engine.capture.counter_draws import Draws
from oneflow.engine.capture.joint import Joint, Like
from oneflow.engine.capture.tracer import Tracer, unaliased
from oneflow.engine.core.errors import GraphError, OneFlowError, user_line
from oneflow.engine.core.placement import Placement
from oneflow.engine.program.notes import JointNote, Origin, joint_note, set_joint_note, set_val
from oneflow.engine.program.program import Key

_TO_PYTHON = frozenset(
    {
        "numpy",
        "tolist",
        "item",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__contains__",
    }
)


AddFeed = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Where:
    """Where the function is while it runs: in a module of this path and class, in so many calls of modules whose
    activations are not kept. What has no ``placement`` runs where its inputs lie."""

    path: str
    kind: str
    region: int | None = None
    placement: Placement | None = None


@dataclass(frozen=True)
class ModuleStep:
    """What to trace. ``run(variables, feeds, add_feed)`` calls the user's function and gives its results as a flat
    list; variables that it has replaced by others stand in the mapping afterwards. ``add_feed(tensor)`` makes another
    feed, behind those there are: it gives a tensor without data, like the given one. ``where()`` tells in which module
    the function is.

    A variable or feed that is ``Like`` a tensor has no data here.

    ``trained`` are the variables to differentiate for. ``loss_scale`` multiplies the losses; None makes it an argument
    of the graph. ``draws_from`` is the seed of random ops.
    """

    name: str
    variables: Mapping[str, Tensor | Like]
    feeds: Sequence[Tensor | Like]
    run: Callable[[dict[str, Tensor], list[Tensor], AddFeed], list[Tensor]]
    where: Callable[[], Where]
    device: torch.device
    trained: frozenset[str] = frozenset()
    loss_scale: float | None = 1.0
    micro_batches: int = 1
    draws_from: int = 0
    autocast: torch.dtype | None = None


@dataclass(frozen=True)
class TracedStep:
    """A joint graph, the tensors that the function had from elsewhere, by the names of variables, and the line of its
    first loss."""

    joint: Joint
    constants: dict[str, Tensor]
    loss_line: str


def trace_step(step: ModuleStep) -> TracedStep:
    """Traces the function's forward, and its backward if it trains.

    Leaves aten ops alone, each with its value without data, its part of the step, and the module it came from. Random
    ops draw by counter.
    """
    tracer = Tracer(JointNote())
    inputs = (*step.variables.values(), *step.feeds)
    arguments = [tracer.fake(value.detach() if isinstance(value, Tensor) else value) for value in inputs]
    arguments.append(tracer.fake(Like((1,), torch.int64, step.device)))
    if step.trained and step.loss_scale is None:
        arguments.append(tracer.fake(Like((), torch.get_default_dtype(), step.device)))
    trace = _Trace(step, tracer)
    return trace.described(tracer.trace(trace.run, arguments, trace.draws.table))


class _Trace:
    """The traced function, and what is known once it has run."""

    def __init__(self, step: ModuleStep, tracer: Tracer[JointNote]) -> None:
        self.step = step
        self._tracer = tracer
        self._added: list[tuple[Tensor, fx.Node]] = []  # feeds that the function asked for
        self.draws = Draws(step.draws_from)
        self.losses: list[Tensor] = []
        self.loss_line = ""
        self.results = 0
        self.trained: list[str] = []

    # -------------------------------------------------------------- the function

    def run(self, *arguments: Tensor) -> list[Tensor]:
        step = self.step
        count = len(step.variables)
        stored = dict(zip(step.variables, arguments[:count]))
        feeds, (number, *scale) = list(arguments[count : count + len(step.feeds)]), arguments[count + len(step.feeds) :]
        self.draws.step = number
        values = {
            name: value.detach().requires_grad_() if name in step.trained else value for name, value in stored.items()
        }
        given = dict(values)
        with torch.set_grad_enabled(bool(step.trained)), self._autocast(), _Watch(self):
            results = step.run(values, feeds, self.add_feed)
        gradients = self._gradients(given, scale)
        self._tracer.enter(JointNote(None, "backward" if self.losses else "forward"))
        self.results = len(results)
        outputs = [*unaliased(results, [*arguments, *(tensor for tensor, _ in self._added)]), *gradients]
        for name, value in values.items():
            if value is not given[name]:  # a buffer that the function has replaced
                stored[name].copy_(value.detach())
        return outputs

    def add_feed(self, tensor: Tensor) -> Tensor:
        """A feed that becomes known while the function runs."""
        added = self._tracer.add_placeholder(f"added_feed_{len(self._added)}", tensor)
        self._added.append(added)
        return added[0]

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.step.autocast is None:
            return nullcontext()
        return torch.autocast(self.step.device.type, dtype=self.step.autocast)

    def _gradients(self, values: Mapping[str, Tensor], scale: Sequence[Tensor]) -> list[Tensor]:
        if not self.losses:
            return []
        names = [name for name in values if name in self.step.trained]
        seeds = [self._seed(loss, scale) for loss in self.losses]
        found = torch.autograd.grad(self.losses, [values[name] for name in names], seeds, allow_unused=True)
        self.trained = [name for name, gradient in zip(names, found) if gradient is not None]
        return [gradient for gradient in found if gradient is not None]

    def _seed(self, loss: Tensor, scale: Sequence[Tensor]) -> Tensor:
        if scale:
            return (scale[0] / self.step.micro_batches).to(loss.dtype).expand(loss.shape)
        assert self.step.loss_scale is not None
        return torch.full_like(loss, self.step.loss_scale / self.step.micro_batches)

    def mark_loss(self, loss: Tensor, arguments: Mapping[str, Any]) -> None:
        """What ``loss.backward()`` does while a step is traced: the gradients are taken when the whole of it is
        there."""
        name = self.step.name
        if not self.step.trained:
            raise GraphError(
                f"{name}: backward() in build(), but the graph trains nothing; give it an optimizer by add_optimizer() "
                f"in __init__()"
            )
        if loss.numel() != 1 or arguments.get("gradient") is not None:
            raise GraphError(
                f"{name}: Grad can be implicitly created only for scalar outputs: backward() in build() is called on "
                f"one number and without a gradient, "
                f"this tensor has the shape {tuple(loss.shape)}; take its mean() or sum()"
            )
        if not loss.requires_grad:
            raise GraphError(f"{name}: backward() of a tensor that depends on no parameter of the graph's optimizers")
        self.loss_line = self.loss_line or user_line()
        self.losses.append(loss)

    # -------------------------------------------------------------- notes

    def enter(self) -> Origin:
        """Gives what follows the origin where the function now is."""
        where = self.step.where()
        origin = Origin(where.path, where.kind, user_line(), where.placement)
        self._tracer.enter(JointNote(origin, region=where.region))
        return origin

    def follow_backward(self, result: Any, origin: Origin) -> None:
        """Gives the backward pass of a call's result the origin of the call."""
        values = result if isinstance(result, (tuple, list)) else (result,)
        self._tracer.follow_backward(values, JointNote(origin, "backward"))

    # -------------------------------------------------------------- what was traced

    def described(self, module: fx.GraphModule) -> TracedStep:
        graph = module.graph
        for node, note in self._tracer.origins(graph):
            set_joint_note(node, note)
        feeds = len(self.step.feeds)
        self._refuse_generators(graph)
        _move_up([node for _, node in self._added])
        constants = _constants_as_arguments(module)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        keys: list[Key] = [("variable", name) for name in self.step.variables]
        keys += [("feed", number) for number in range(feeds)]
        keys += [("step",), ("scale",)][: len(placeholders) - len(keys) - len(self._added) - len(constants)]
        keys += [("feed", feeds + number) for number in range(len(self._added))]
        keys += [("variable", name) for name in constants]
        joint = Joint(graph, dict(zip(keys, placeholders)), (self.results, 0, 0), tuple(self.trained))
        return TracedStep(joint, constants, self.loss_line)

    def _refuse_generators(self, graph: fx.Graph) -> None:
        """Attention may draw and does not: where it has dropout, torch takes it apart."""
        for node in graph.nodes:
            if is_random(node) and "attention" not in str(node.target):
                origin = joint_note(node).origin
                line, place = (
                    (f"{origin.line}: ", f" in {origin.name!r} ({origin.kind})") if origin is not None else ("", "")
                )
                raise GraphError(
                    f"{line}{self.step.name}: {node.target}{place} draws from torch's generator, so no run could be "
                    f"repeated or resumed; "
                    "make its values of flow.rand or flow.randn, which graphs draw by counter, or give them to the "
                    "graph"
                )


def _move_up(added: Sequence[fx.Node]) -> None:
    """Has arguments that were made on the way stand behind those there were at first."""
    for node in added:
        last = next(other for other in node.graph.nodes if other.next.op != "placeholder")
        if last is not node:
            last.append(node)
        set_joint_note(node, JointNote())


def _constants_as_arguments(module: fx.GraphModule) -> dict[str, Tensor]:
    """Makes arguments of the tensors that the graph has taken from elsewhere; gives them by name."""
    found: dict[str, tuple[Tensor, fx.Node]] = {}
    last = [node for node in module.graph.nodes if node.op == "placeholder"][-1]
    for node in [node for node in module.graph.nodes if node.op == "get_attr"]:
        tensor = getattr(module, node.target)
        name = f"constant.{node.target}"
        if name not in found:
            with module.graph.inserting_after(last):
                last = module.graph.placeholder("constant")
            set_joint_note(last, JointNote())
            set_val(last, tensor)
            found[name] = tensor, last
        node.replace_all_uses_with(found[name][1])
        module.graph.erase_node(node)
    return {name: tensor for name, (tensor, _) in found.items()}


class _Watch(TorchFunctionMode):
    """Sees every function that the user's one calls on tensors: notes where it came from, and refuses what cannot be
    traced."""

    def __init__(self, trace: _Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.backward:
            return self._trace.mark_loss(args[0], {**dict(zip(("gradient",), args[1:])), **kwargs})
        if func is torch.nn.functional.dropout or func is torch.dropout:
            func = self._trace.draws.dropout
        origin = self._trace.enter()
        try:
            made = func(*args, **kwargs)
        except DataDependentOutputException as error:
            raise self._refused(func, error) from error
        except DynamicOutputShapeException as error:
            raise self._refused(
                func, error, "gives a tensor whose shape depends on values; a graph has the same shapes at every step"
            ) from error
        except OneFlowError:
            raise
        except (RuntimeError, TypeError) as error:
            if getattr(func, "__name__", "") in _TO_PYTHON and any(isinstance(arg, FakeTensor) for arg in args):
                raise self._refused(func, error) from error
            if type(error) is not RuntimeError:
                raise
            raise GraphError(
                f"{origin.line}: {self._trace.step.name}: {_called(func)} in {origin.name!r} ({origin.kind}): {error}"
            ) from error
        self._trace.follow_backward(made, origin)
        return made

    def _refused(
        self, func: Any, error: Exception, why: str = "looks at values, which are not there while a graph is built"
    ) -> GraphError:
        return GraphError(
            f"{self._trace.step.name}: {_called(func)} in build() {why} ({type(error).__name__}); build() runs once, "
            f"on tensors without data: "
            "use tensor ops in its place such as flow.where, or compute it outside the graph"
        )


def _called(func: Any) -> str:
    return getattr(func, "__name__", str(func))
