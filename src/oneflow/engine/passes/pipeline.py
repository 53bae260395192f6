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
    gathers                     Program          of a variable, then transposed; not of its transpose          gather_views.py
    prepare                                      constant folding, batch norm into filters, packed filters     prepare.py
    fused convolutions                           with sum and activation, on packed filters                    fused_conv.py
    remake                                       results of layer norms made again for the backward pass              remake.py
    masks                                        of relu6, by what it made                                            masks.py
    pools                                        backward, by the shape of something that is kept anyway              pools.py
    order                                        gradients of weights before those of inputs, to free those        order.py
    fused updates                                with clipping and regularizers, in one or two passes over memory      fuse_updates.py
    overlap                                      updates and gathers in the midst of the backward pass         early.py
    fused loss                                   cross entropy over many classes, backward in one op           fused_loss.py
    fused norms                                  batch norm with sum and relu, forward and backward            fused_norm.py
    winograd                                     convolutions of 3 x 3 and 5 x 5 filters in fewer multiplications  winograd.py
    products                                     by the faster library                                         products.py
    in place                                     elementwise ops write over what nothing reads again           inplace.py
    sequences                                    ops of prediction as one call, in planned memory              native_sequences.py

Every stage is a function of what the one before it left, and says in its docstring what it relies on and what it
leaves.
"""

from __future__ import annotations

from dataclasses import replace

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
from oneflow.engine.program.program import After, Program, nothing_after


def compile_rank(assigned: Assigned, rank: int, keeps_values: bool = True, after: After = nothing_after) -> Program:
    """The program of ``rank`` as it runs. ``keeps_values``: a predict program may hold what it made of its variables
    from step to step."""
    program = lower_job(assigned, rank)
    after("lowered", program)
    program = replace(program, fusion=fusion_setting(assigned.decl.fusion), ranks=assigned.ranks)
    return optimized(program, folds=keeps_values and assigned.decl.training is None, after=after)


def optimized(program: Program, folds: bool = False, after: After = nothing_after) -> Program:
    """A lowered program as it runs. Its values, and what it sends, are those of the given one, which stays as it is:
    the program that a plan shows. ``folds`` what depends on variables alone, which a train program changes at every
    step."""
    fuses = program.fusion != "off"
    sections = {name: replace(section, graph=_copied(section.graph)) for name, section in program.sections.items()}
    for section in sections.values():
        gather_then_transpose(section.graph)
    if folds:  # which ranks may decide differently; it leaves collectives as they are
        sections = prepare(sections, fuses=fuses)
        after("prepare", replace(program, sections=sections))
    for section in sections.values():
        remake_norms(section.graph)
        mask_by_results(section.graph)
        pool_by_shapes(section.graph)
        weights_first(section.graph)
        if fuses:
            fuse_updates(section.graph)
    if "step" in sections:
        update_early(sections["step"].graph, program.is_common)
        gather_early(sections["step"].graph, program.is_common)
        after("overlap", replace(program, sections=sections))
    for name, section in sections.items():
        multiply_in_place(section.graph)
        fuse_cross_entropy(section.graph)
        if fuses:
            fuse_batch_norms(section.graph)
            convolve_by_winograd(section.graph)
        multiply_by_onednn(section.graph)
        if name != "prepare":  # it keeps what it makes
            write_over(section.graph)
    after("in place", replace(program, sections=sections))
    if folds:
        make_sequences(sections["step"].graph)
    return replace(program, sections=sections)


def _copied(graph: fx.Graph) -> fx.Graph:
    copy: fx.Graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        new[node] = copy.node_copy(node, new.__getitem__)
    return copy
