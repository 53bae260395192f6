"""How a traced job becomes the programs of its ranks: the stages in order. A job on one device is a program of one
rank.

    rewrite                     logical graph    cheaper ops of the same values                                rewrite.py
    joint graph                 aten graph       forward and backward, each node with the op it came from      joint.py
    clean up                                     dead code elimination, common subexpressions                  cleanup.py, strides.py
    functionalize                                on several ranks: no writes but into arguments                functionalize.py, dense_views.py
    recompute                                    activation checkpointing                                      recompute.py
    place, infer                                 a mesh and an SBP signature for every node                    place.py, infer.py, mirror.py
    ---------------------------------------------------------------------------------------- what all ranks share: distribute.py
    lower                       rank's graph     local calls and boxing                                        lower.py
    buckets                                      many all-reduces become one                                   bucket.py
    sections                    Program          micro-batches, pipeline (1F1B), reduction, update             rank_program.py
    ---------------------------------------------------------------------------------------- what a plan shows
    PASSES                      Program          the passes of this module, in their order

Every stage is a function of what the one before it left, and says in its docstring what it relies on and what it
leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.core.fusion_setting import fusion_setting
from oneflow.engine.lowering.bucket import multiply_in_place
from oneflow.engine.lowering.rank_program import lower_job
from oneflow.engine.passes.early import gather_early, update_early
from oneflow.engine.passes.fuse_updates import fuse_updates
from oneflow.engine.passes.fused_loss import fuse_cross_entropy
from oneflow.engine.passes.fused_norm import fuse_batch_norms
from oneflow.engine.passes.gather_views import gather_then_transpose
from oneflow.engine.passes.inplace import write_over
from oneflow.engine.passes.masks import mask_by_results
from oneflow.engine.passes.native_sequences import make_sequences
from oneflow.engine.passes.order import weights_first
from oneflow.engine.passes.pools import pool_by_shapes
from oneflow.engine.passes.prepare import prepare
from oneflow.engine.passes.products import multiply_by_onednn
from oneflow.engine.passes.remake import remake_norms
from oneflow.engine.passes.winograd import convolve_by_winograd
from oneflow.engine.program.program import After, Program, Section, nothing_after

Sections = dict[str, Section]


def compile_rank(assigned: Assigned, rank: int, keeps_values: bool = True, after: After = nothing_after) -> Program:
    """The program of ``rank`` as it runs. ``keeps_values``: a predict program may hold what it made of its variables
    from step to step."""
    program = lower_job(assigned, rank)
    after("lowered", program)
    program = replace(program, fusion=fusion_setting(assigned.decl.fusion), ranks=assigned.ranks)
    return optimized(program, folds=keeps_values and assigned.decl.training is None, after=after)


@dataclass(frozen=True)
class Setting:
    """What decides which passes a program gets.

    Args:
        folds: Whether values that depend on variables alone are computed once, as in a predict program.
        fuses: Whether CPU kernels may replace torch's ops.
        is_common: Whether all ranks run the same program.
    """

    folds: bool
    fuses: bool
    is_common: bool


@dataclass(frozen=True)
class Pass:
    """A named rewrite of a program's sections that preserves every value.

    Args:
        name: What plans of work and errors of the verifier call it.
        run: The rewrite of one section's graph, in place, or of all sections.
        when: Whether a program gets the pass.
        only: The section that it rewrites; all of them if empty.
        unless: A section that it leaves alone.
    """

    name: str
    run: Callable[..., Any]
    when: Callable[[Setting], bool] = lambda setting: True
    only: str = ""
    unless: str = ""

    def __call__(self, sections: Sections, setting: Setting) -> Sections:
        """The sections after the pass."""
        for name, section in sections.items():
            if name != self.unless and self.only in ("", name):
                self.run(section.graph)
        return sections


@dataclass(frozen=True)
class ProgramPass(Pass):
    """A pass that takes and returns all sections, with the setting."""

    def __call__(self, sections: Sections, setting: Setting) -> Sections:
        return self.run(sections, setting)


def _fuses(setting: Setting) -> bool:
    return setting.fuses


def _folds(setting: Setting) -> bool:
    return setting.folds


def _fold(sections: Sections, setting: Setting) -> Sections:
    """Ranks may decide differently whether to fold, so it comes after the last rewrite of collectives."""
    return prepare(sections, fuses=setting.fuses)


def _overlap(sections: Sections, setting: Setting) -> Sections:
    if "step" in sections:
        update_early(sections["step"].graph, setting.is_common)
        gather_early(sections["step"].graph, setting.is_common)
    return sections


PASSES: tuple[Pass, ...] = (
    Pass("gather variables, then transpose", gather_then_transpose),
    ProgramPass("fold constants, prepare filters", _fold, when=_folds),
    Pass("rematerialize layer norms", remake_norms),
    Pass("mask relu6 by its result", mask_by_results),
    Pass("max-pool backward by shape", pool_by_shapes),
    Pass("weight gradients first", weights_first),
    Pass("fuse updates", fuse_updates, when=_fuses),
    ProgramPass("overlap updates and gathers with the backward pass", _overlap),
    Pass("multiply into buckets", multiply_in_place),
    Pass("fuse cross entropy", fuse_cross_entropy),
    Pass("fuse batch norms", fuse_batch_norms, when=_fuses),
    Pass("convolve by Winograd", convolve_by_winograd, when=_fuses),
    Pass("multiply by oneDNN", multiply_by_onednn),
    Pass("write in place", write_over, unless="prepare"),  # that section keeps its results
    Pass("run prediction ops as sequences", make_sequences, when=_folds, only="step"),
)
"""The passes over a lowered program, in order. Each is verified in tests after it has run (``verify.py``)."""


def optimized(program: Program, folds: bool = False, after: After = nothing_after) -> Program:
    """A lowered program as it runs: all ``PASSES`` that apply.

    Args:
        program: The program that a plan shows; it stays as it is.
        folds: Whether values that depend on variables alone are computed once; a train program changes variables at
            every step.
        after: Called with the name of each pass and the program it left.

    Returns:
        A program with the same values and the same messages to other ranks.
    """
    setting = Setting(folds, program.fusion != "off", program.is_common)
    sections = {name: replace(section, graph=_copied(section.graph)) for name, section in program.sections.items()}
    for rewrite in PASSES:
        if rewrite.when(setting):
            sections = rewrite(sections, setting)
            after(rewrite.name, replace(program, sections=sections))
    return replace(program, sections=sections)


def _copied(graph: fx.Graph) -> fx.Graph:
    copy: fx.Graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        new[node] = copy.node_copy(node, new.__getitem__)
    return copy
