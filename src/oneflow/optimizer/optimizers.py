"""The optimizers: values that say which update a job's variables get. ``minimize`` is called inside the job body."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from oneflow.compat.spellings import spelled
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.body import Symbol, require_body
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.number import flag, number
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.variable import Initializer, VariableDecl
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import State, UpdateRow
from oneflow.initializer import constant_initializer, zeros_initializer
from oneflow.optimizer.grad_clipping import ClipByGlobalNorm, ClipGradNorm
from oneflow.optimizer.loss_scale import LossScale, static_loss_scale
from oneflow.optimizer.schedule import CustomScheduler, LrScheduler

Variables = str | Sequence[str] | Callable[[], Sequence[str]] | None
Patterns = str | Sequence[str] | None


class Optimizer:
    """Base of all optimizers.

    ``variables`` (names, or a function that gives them) restricts what is updated; the default is every trainable
    variable that a loss depends on.
    """

    def __init__(
        self,
        lr_scheduler: LrScheduler,
        loss_scale_factor: float | None = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        if not isinstance(lr_scheduler, LrScheduler):
            raise ArgumentError(f"lr_scheduler is a flow.optimizer.*Scheduler, got {lr_scheduler!r}")
        if loss_scale_factor is not None and loss_scale_policy is not None:
            raise ArgumentError("give loss_scale_factor or loss_scale_policy, not both")
        if train_step_lbn is not None:
            raise UnsupportedError("train_step_lbn is not supported: the step is counted by the job itself")
        if grad_clipping is not None and not isinstance(grad_clipping, (ClipByGlobalNorm, ClipGradNorm)):
            raise ArgumentError(
                f"grad_clipping is flow.optimizer.grad_clipping.by_global_norm(...), got {grad_clipping!r}"
            )
        if loss_scale_policy is not None and not isinstance(loss_scale_policy, LossScale):
            raise ArgumentError(
                f"loss_scale_policy is one of flow.optimizer.loss_scale, such as static_loss_scale(128); got "
                f"{loss_scale_policy!r}"
            )
        self.lr_scheduler = lr_scheduler
        self.secondary_lr: float | None = None
        self.grad_clipping = grad_clipping
        self.loss_scale = static_loss_scale(loss_scale_factor) if loss_scale_factor is not None else loss_scale_policy
        self.variables = variables if variables is None or callable(variables) else _names(variables)
        self.weight_decay = WeightDecay()

    def minimize(self, loss: Symbol | Sequence[Symbol]) -> None:
        """Makes this the job's optimizer and ``loss`` (one blob or several) what it lowers."""
        body = require_body(f"flow.optimizer.{type(self).__name__}.minimize")
        body.minimize(loss if isinstance(loss, (list, tuple)) else [loss], self)

    @property
    def title(self) -> str:
        """How errors and plans name it."""
        return type(self).__name__

    def members(self) -> list[Optimizer]:
        """The optimizers that update variables; several for a combined one."""
        return [self]

    def named(self) -> Sequence[str] | None:
        """The variables that ``variables=`` names; None for all."""
        return _names(self.variables()) if callable(self.variables) else self.variables

    def selects(self, name: str) -> bool:
        names = self.named()
        return names is None or name in names

    def owner(self, name: str) -> Optimizer:
        """The member that updates a variable which this one selects."""
        return next(member for member in self.members() if member.selects(name))

    def rate(self, t: int, base_lr: float | None = None) -> float:
        """The learning rate that the update of step ``t`` is given."""
        return self.lr_scheduler.lr(t, base_lr)

    def count(self, t: int) -> float:
        """The number of the update that step ``t`` makes, counted from 1."""
        return float(t + 1)

    @property
    def row(self) -> UpdateRow:
        """The update, and what is to be known of it."""
        row, _ = self.update(0.0)
        return row

    @property
    def states(self) -> tuple[str, ...]:
        """Suffixes of the state variables that each trained variable gets."""
        return tuple(state.suffix for state in self.row.states)

    def state_decls(self, decl: VariableDecl) -> list[VariableDecl]:
        """The state variables of one trained variable, in the order of ``states``."""
        row, numbers = self.update(0.0)
        return [_state(decl, state, numbers) for state in row.states]

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        """The row of the update, one for all weight decays, and its fixed numbers for variables of this weight
        decay."""
        raise NotImplementedError


def _state(decl: VariableDecl, state: State, numbers: Mapping[str, Any]) -> VariableDecl:
    initializer = zeros_initializer() if state.start is None else constant_initializer(numbers[state.start])
    if state.shape is None:
        return state_variable(f"{decl.name}-{state.suffix}", decl.spec, initializer, decl.line, decl.channels_last)
    return state_variable(
        f"{decl.name}-{state.suffix}", TensorSpec(state.shape, dtypes.float32), initializer, decl.line
    )


def state_variable(
    name: str, spec: TensorSpec, initializer: Initializer, line: str, channels_last: bool = False
) -> VariableDecl:
    return VariableDecl(name, spec, initializer, trainable=False, line=line, channels_last=channels_last)


def _names(variables: Any) -> list[str]:
    """Names of variables; one that is not in a list is a list of one."""
    names: list[Any] = (
        [variables] if isinstance(variables, str) else list(variables) if isinstance(variables, Iterable) else [None]
    )
    if not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"variables is a list of variable names, or a function that gives one; got {variables!r}")
    return names


class WeightDecay:
    """A rate, and which variables it applies to: regular expressions searched for in the full variable name."""

    def __init__(self, rate: float | None = None, includes: Patterns = None, excludes: Patterns = None) -> None:
        if includes is not None and excludes is not None:
            raise ArgumentError("weight decay takes includes or excludes, not both")
        self._rate = 0.0 if rate is None else number("weight_decay", rate, 0)
        self._includes = _patterns(includes)
        self._excludes = _patterns(excludes)

    def of(self, name: str) -> float:
        if self._includes is not None:
            return self._rate if any(p.search(name) for p in self._includes) else 0.0
        if self._excludes is not None:
            return 0.0 if any(p.search(name) for p in self._excludes) else self._rate
        return self._rate

    @property
    def is_set(self) -> bool:
        return self._rate != 0.0


def _patterns(patterns: Patterns) -> list[re.Pattern[str]] | None:
    if patterns is None:
        return None
    texts = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"weight decay includes or excludes a list of regular expressions, got {patterns!r}")
    try:
        return [re.compile(text) for text in texts]
    except re.error as error:
        raise ArgumentError(f"{patterns!r} is not a regular expression: {error}") from None


class SGD(Optimizer):
    """Momentum SGD with the rate inside the velocity: v = beta * v - lr * g; w += v. Momentum 0 or None is plain
    SGD."""

    def __init__(
        self,
        lr_scheduler: LrScheduler,
        loss_scale_factor: float | None = None,
        momentum: float | None = 0.9,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables)
        self.momentum = 0.0 if momentum is None else number("momentum", momentum, 0, 1)

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        if not self.momentum:
            return formulas.SGD, {"weight_decay": weight_decay}
        return formulas.MOMENTUM, {"beta": self.momentum, "weight_decay": weight_decay}


class SGDW(SGD):
    """SGD with decoupled weight decay: w also loses lr * weight_decay * w."""

    def __init__(
        self,
        lr_scheduler: LrScheduler,
        loss_scale_factor: float | None = None,
        momentum: float | None = 0.9,
        weight_decay: float | None = None,
        weight_decay_includes: Patterns = None,
        weight_decay_excludes: Patterns = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, momentum, grad_clipping, train_step_lbn, loss_scale_policy, variables
        )
        self.weight_decay = WeightDecay(weight_decay, weight_decay_includes, weight_decay_excludes)


class Adam(Optimizer):
    """Adam; without ``do_bias_correction`` (the default) the moving means are used as they are."""

    def __init__(
        self,
        lr_scheduler: LrScheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        do_bias_correction: bool = False,
        loss_scale_factor: float | None = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables)
        if do_bias_correction and isinstance(lr_scheduler, CustomScheduler):
            raise UnsupportedError(
                f"CustomScheduler gives the rate as it is, {type(self).__name__} cannot add bias correction"
            )
        self.beta1, self.beta2 = number("beta1", beta1, 0, below=1), number("beta2", beta2, 0, below=1)
        self.epsilon, self.do_bias_correction = (
            number("epsilon", epsilon, 0),
            flag("do_bias_correction", do_bias_correction),
        )

    def rate(self, t: int, base_lr: float | None = None) -> float:
        rate = super().rate(t, base_lr)
        if self.do_bias_correction:
            rate *= math.sqrt(1.0 - self.beta2 ** (t + 1)) / (1.0 - self.beta1 ** (t + 1))
        return rate

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon, "weight_decay": weight_decay}
        return formulas.JOB_ADAM, numbers


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        lr_scheduler: LrScheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        do_bias_correction: bool = False,
        loss_scale_factor: float | None = None,
        weight_decay: float | None = None,
        weight_decay_includes: Patterns = None,
        weight_decay_excludes: Patterns = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(
            lr_scheduler,
            beta1,
            beta2,
            epsilon,
            do_bias_correction,
            loss_scale_factor,
            grad_clipping,
            train_step_lbn,
            loss_scale_policy,
            variables,
        )
        self.weight_decay = WeightDecay(weight_decay, weight_decay_includes, weight_decay_excludes)


class LazyAdam(Adam):
    """Adam with bias correction; on dense gradients it skips nothing."""

    def __init__(
        self,
        lr_scheduler: LrScheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        loss_scale_factor: float | None = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(
            lr_scheduler,
            beta1,
            beta2,
            epsilon,
            True,
            loss_scale_factor,
            grad_clipping,
            train_step_lbn,
            loss_scale_policy,
            variables,
        )


class RMSProp(Optimizer):
    """RMSProp with epsilon inside the root; ``centered`` divides by the standard deviation instead."""

    @spelled("optimizer.RMSProp")
    def __init__(
        self,
        lr_scheduler: LrScheduler,
        decay_rate: float = 0.99,
        epsilon: float = 1e-8,
        centered: bool = False,
        loss_scale_factor: float | None = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables)
        self.decay_rate, self.epsilon = number("decay_rate", decay_rate, 0, 1), number("epsilon", epsilon, 0)
        self.centered = flag("centered", centered)

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        row = formulas.RMSPROP_CENTERED if self.centered else formulas.RMSPROP
        return row, {"alpha": self.decay_rate, "epsilon": self.epsilon, "weight_decay": 0.0}


class LARS(Optimizer):
    """Momentum whose rate is scaled for each variable by the ratio of its norm to its gradient's."""

    @spelled("optimizer.LARS")
    def __init__(
        self,
        lr_scheduler: LrScheduler,
        momentum_beta: float = 0.9,
        epsilon: float = 1e-9,
        lars_coefficient: float = 0.0001,
        loss_scale_factor: float | None = None,
        weight_decay: float | None = None,
        weight_decay_includes: Patterns = None,
        weight_decay_excludes: Patterns = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables)
        self.momentum_beta, self.epsilon = number("momentum_beta", momentum_beta, 0, 1), number("epsilon", epsilon, 0)
        self.lars_coefficient = number("lars_coefficient", lars_coefficient, 0)
        self.weight_decay = WeightDecay(weight_decay, weight_decay_includes, weight_decay_excludes)

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {"beta": self.momentum_beta, "epsilon": self.epsilon, "coefficient": self.lars_coefficient}
        return formulas.LARS, {**numbers, "weight_decay": weight_decay}


class LAMB(Optimizer):
    """Adam's corrected direction, scaled for each variable by the ratio of its norm to the direction's."""

    @spelled("optimizer.LAMB")
    def __init__(
        self,
        lr_scheduler: LrScheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        loss_scale_factor: float | None = None,
        weight_decay: float | None = None,
        weight_decay_includes: Patterns = None,
        weight_decay_excludes: Patterns = None,
        grad_clipping: ClipByGlobalNorm | ClipGradNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
        variables: Variables = None,
    ) -> None:
        super().__init__(lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy, variables)
        self.beta1, self.beta2 = number("beta1", beta1, 0, below=1), number("beta2", beta2, 0, below=1)
        self.epsilon = number("epsilon", epsilon, 0)
        self.weight_decay = WeightDecay(weight_decay, weight_decay_includes, weight_decay_excludes)

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon, "weight_decay": weight_decay}
        return formulas.JOB_LAMB, numbers


class CombinedOptimizer(Optimizer):
    """Several optimizers, each with ``variables=`` of its own, none named twice."""

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        loss_scale_factor: float | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: LossScale | None = None,
    ) -> None:
        if not isinstance(optimizers, (list, tuple)) or not all(isinstance(o, Optimizer) for o in optimizers):
            raise ArgumentError(f"CombinedOptimizer takes a list of optimizers, got {optimizers!r}")
        if not optimizers or any(o.variables is None for o in optimizers):
            raise ArgumentError("CombinedOptimizer takes optimizers that each name their variables=")
        if any(o.loss_scale is not None for o in optimizers):
            raise ArgumentError("the loss scale is given to CombinedOptimizer itself, not to one of its optimizers")
        super().__init__(optimizers[0].lr_scheduler, loss_scale_factor, None, train_step_lbn, loss_scale_policy)
        self.optimizers = list(optimizers)

    def members(self) -> list[Optimizer]:
        return self.optimizers

    def selects(self, name: str) -> bool:
        chosen = [o for o in self.optimizers if o.selects(name)]
        if len(chosen) > 1:
            raise ArgumentError(
                f"variable {name!r} is named by {len(chosen)} optimizers of a CombinedOptimizer; name it once"
            )
        return bool(chosen)
