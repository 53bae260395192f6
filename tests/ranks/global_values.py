"""Laws of values and layouts: conversions, factories, random numbers, gradients between local and global, errors."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from global_rank import RANK, SIZE, B, P, S, layouts, meshes, near, placement, spread
from torch import nn

import oneflow as flow
from oneflow.engine.global_tensor import create
from oneflow.engine.global_tensor.tensor import GlobalTensor


def raises(words: str, function: Any, *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(f"no error: {words}")


def every() -> Any:
    return placement("cpu", list(range(SIZE)))


# ------------------------------------------------------------------ conversions


def law_a_tensor_is_the_same_in_every_layout() -> None:
    for number, (shape, place) in enumerate(itertools.product(((7, 5), (1, 3), (2, 2), (0, 4)), meshes())):
        whole = torch.arange(float(np.prod(shape))).reshape(shape)
        for i, (source, target) in enumerate(itertools.product(layouts(2, len(place.hierarchy)), repeat=2)):
            if len(place.hierarchy) == 1 or i % 7 == number % 7:
                made = spread(whole, place, source).to_global(sbp=target)
                assert made.sbp == target and made.placement == place
                near(made, whole, 1e-6)


def law_every_dtype_can_be_laid_out() -> None:
    for dtype in (
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.bool,
    ):
        whole = torch.arange(35).reshape(7, 5).to(dtype)
        for place in meshes():
            pairs = list(itertools.product(layouts(2, len(place.hierarchy), dtype.is_floating_point), repeat=2))
            for source, target in random.Random(str(dtype)).sample(pairs, 6):
                found = spread(whole, place, source).to_global(sbp=target)
                value = found.to(torch.float32)
                assert torch.allclose(torch.from_numpy(value.numpy()), whole.to(torch.float32), 0.02, 0.02)


def law_tensors_move_between_placements() -> None:
    whole = torch.arange(35.0).reshape(7, 5)
    places = [placement("cpu", [0]), placement("cpu", [1]), *meshes()]
    if SIZE == 4:
        places += [
            placement("cpu", [0, 1]),
            placement("cpu", [3, 2]),
            placement("cpu", [[[0, 1], [2, 3]]]),
            placement("cpu", [[[0], [1]], [[2], [3]]]),
        ]
    dice = random.Random(2)
    for first, second in itertools.product(places, repeat=2):
        for _ in range(2):
            source, target = (dice.choice(layouts(2, len(place.hierarchy))) for place in (first, second))
            leaf = spread(whole, first, source).requires_grad_()
            made = leaf.to_global(placement=second, sbp=target)
            assert made.placement == second and made.sbp == target
            near(made, whole)
            (made * made).sum().backward()
            assert leaf.grad.placement == first and leaf.grad.sbp == source
            near(leaf.grad, 2 * whole)


def law_local_parts_make_a_tensor() -> None:
    place = every()
    part = torch.full((2, 3), float(RANK))
    near(part.to_global(place, S(0)), torch.arange(float(SIZE)).repeat_interleave(2)[:, None].expand(2 * SIZE, 3))
    near(part.to_global(place, P), torch.full((2, 3), SIZE * (SIZE - 1) / 2))
    near(part.to_global(place, B), torch.zeros(2, 3))
    uneven = torch.full((2 if RANK == 0 else 1, 3), float(RANK)).to_global(place, S(0))
    assert uneven.shape == (SIZE + 1, 3) and uneven.to_local().shape == (2 if RANK == 0 else 1, 3)
    alone = placement("cpu", [1])
    made = (torch.ones(4, 2) if RANK == 1 else torch.zeros(1)).to_global(alone, S(0))  # others pass anything
    near(made, torch.ones(4, 2))
    assert made.to_local().shape == ((4, 2) if RANK == 1 else (0, 0))


def law_splits_are_balanced_and_the_outer_axis_comes_first() -> None:
    if SIZE != 4:
        return
    square = placement("cpu", [[0, 1], [2, 3]])
    for n, sizes in ((5, [2, 1, 1, 1]), (6, [2, 2, 1, 1]), (2, [1, 1, 0, 0]), (3, [1, 1, 1, 0])):
        assert create.arange(n, placement=every(), sbp=S(0)).to_local().numel() == sizes[RANK]
    assert create.arange(5, placement=square, sbp=[S(0), S(0)]).to_local().numel() == [2, 1, 1, 1][RANK]
    grid = torch.arange(16).reshape(4, 4)
    row_first = spread(grid, square, [S(0), S(1)]).to_local()
    column_first = spread(grid, square, [S(1), S(0)]).to_local()
    assert torch.equal(row_first, grid[2 * (RANK // 2) :][:2, 2 * (RANK % 2) :][:, :2])
    assert torch.equal(column_first, grid[2 * (RANK % 2) :][:2, 2 * (RANK // 2) :][:, :2])


def law_what_becomes_a_sum_is_held_by_the_first_rank() -> None:
    made = create.ones(3, placement=every(), sbp=B).to_global(sbp=P)
    assert torch.equal(made.to_local(), torch.ones(3) if RANK == 0 else torch.zeros(3))


def law_attributes_are_those_of_the_logical_tensor() -> None:
    x = create.ones(5, 3, placement=every(), sbp=S(0))
    assert x.is_global and not x.is_local and x.is_consistent and x.shape == (5, 3) and x.numel() == 15 and len(x) == 5
    assert x.sbp == (S(0),) and x.placement == every() and x.to_local().is_contiguous()
    assert repr(x).endswith(
        f"placement={every()}, sbp=(oneflow.sbp.split(dim=0),), dtype=oneflow.float32)"
    ) and "1., 1., 1." in repr(x)
    assert (
        x.sum().item() == 15
        and x.tolist() == [[1.0] * 3] * 5
        and bool(x.sum() > 14)
        and float(x[0, 0]) == 1.0
        and int(x.sum()) == 15
    )
    assert f"{x.sum():.1f}" == "15.0"
    raises("Only local tensors have 'device'", lambda: x.device)
    x.check_meta_consistency()
    elsewhere = create.arange(3, placement=placement("cpu", [1]), sbp=B)
    assert elsewhere.tolist() == [0, 1, 2] and elsewhere.sum().item() == 3 and torch.equal(elsewhere, elsewhere)
    assert pickle.loads(pickle.dumps((x.placement, x.sbp))) == (x.placement, x.sbp)


# ------------------------------------------------------------------ gradients


def law_gradients_of_local_tensors() -> None:
    for sbp, expected in (
        (B, torch.full((2, 3), 2.0) if RANK == 0 else torch.zeros(2, 3)),
        (S(0), torch.full((2, 3), 2.0)),
        (P, torch.full((2, 3), 2.0)),
    ):
        local = torch.ones(2, 3, requires_grad=True)
        (local.to_global(every(), sbp) * 2.0).sum().backward()
        assert (
            local.grad is not None and not isinstance(local.grad, GlobalTensor) and torch.equal(local.grad, expected)
        ), (sbp, local.grad)


def law_grad_sbp_lays_out_the_gradient() -> None:
    seen = []
    x = create.ones(SIZE * 2, 3, placement=every(), sbp=B).requires_grad_()
    middle = x * 1.0
    middle.register_hook(lambda gradient: seen.append(gradient.sbp))
    (middle.to_global(sbp=S(0), grad_sbp=B) * 3.0).sum().backward()
    assert seen == [(B,)]
    near(x.grad, torch.full((SIZE * 2, 3), 3.0))


def law_gradients_accumulate_in_the_layout_of_the_leaf() -> None:
    for sbp in (B, S(0), S(1), P):
        leaf = spread(torch.ones(4, 6), every(), sbp).requires_grad_()
        for _ in range(2):
            (leaf * spread(torch.full((4, 6), 2.0), every(), S(0))).sum().backward()
        assert leaf.grad.sbp == (sbp,)
        near(leaf.grad, torch.full((4, 6), 4.0))


def law_to_local_has_a_gradient() -> None:
    x = create.ones(SIZE * 2, 3, placement=every(), sbp=S(0)).requires_grad_()
    (x.to_local() * (RANK + 1.0)).sum().backward()
    near(x.grad, torch.arange(1.0, SIZE + 1).repeat_interleave(2)[:, None].expand(-1, 3).contiguous())


def law_higher_gradients() -> None:
    x = spread(torch.arange(6.0), every(), S(0)).requires_grad_()
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    first.sum().backward()
    near(x.grad, 6 * torch.arange(6.0))


# ------------------------------------------------------------------ factories and random numbers


def law_factories_make_the_same_tensor_in_every_layout() -> None:
    cases = {
        "ones": (lambda **how: create.ones(7, 5, **how), torch.ones(7, 5)),
        "zeros": (lambda **how: create.zeros((7, 5), **how), torch.zeros(7, 5)),
        "full": (lambda **how: create.full((7, 5), 2.5, **how), torch.full((7, 5), 2.5)),
        "eye": (lambda **how: create.eye(7, 5, **how), torch.eye(7, 5)),
        "tensor": (
            lambda **how: create.tensor([[1.0, 2.0], [3.0, 4.0]], **how),
            torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        ),
    }
    for place in meshes():
        for sbp in layouts(2, len(place.hierarchy)):
            for make, expected in cases.values():
                near(make(placement=place, sbp=sbp), expected)
        for sbp in layouts(1, len(place.hierarchy), False):
            near(create.arange(2, 20, 3, placement=place, sbp=sbp), torch.arange(2, 20, 3))
            near(create.full((3,), 7, placement=place, sbp=sbp), torch.full((3,), 7))
    assert create.empty(4, 3, placement=every(), sbp=S(1)).shape == (4, 3)


def law_random_numbers_are_the_same_in_every_layout_whatever_the_seeds_of_other_ranks() -> None:
    makers = [
        lambda **how: create.rand(60, 50, **how),
        lambda **how: create.randn(60, 50, **how),
        lambda **how: create.randint(-3, 9, (60, 50), **how),
        lambda **how: create.normal(2.0, 3.0, (60, 50), **how),
        lambda **how: nn.init.xavier_uniform_(create.empty(60, 50, **how)),
        lambda **how: nn.init.normal_(create.empty(60, 50, **how)),
        lambda **how: nn.functional.dropout(create.ones(60, 50, **how), 0.25),
        lambda **how: torch.rand_like(create.ones(60, 50, **how)),
        lambda **how: torch.bernoulli(create.full((60, 50), 0.3, **how)),
        lambda **how: torch.multinomial(create.ones(60, 50, **how), 3),
        lambda **how: nn.init.trunc_normal_(create.empty(60, 50, **how)),
    ]
    for make in makers:
        found = []
        for place in meshes():
            if place._mesh.ranks[0] != 0:
                continue
            for sbp in layouts(2, len(place.hierarchy), False):
                torch.manual_seed(5 if RANK == 0 else RANK)
                found.append(make(placement=place, sbp=sbp).numpy())
        assert all(np.array_equal(one, found[0]) for one in found[1:])
        assert len(np.unique(found[0][:, 0])) > 1
    torch.manual_seed(1)
    order = create.randperm(50, placement=every(), sbp=S(0))
    assert sorted(order.tolist()) == list(range(50)) and order.tolist() != list(range(50))


def law_random_numbers_have_the_moments_that_they_should() -> None:
    torch.manual_seed(3)
    how = {"placement": every(), "sbp": S(0)}
    uniform, normal = create.rand(300, 300, **how).numpy(), create.randn(300, 300, **how).numpy()
    assert (
        abs(uniform.mean() - 0.5) < 0.005
        and abs(uniform.std() - 12**-0.5) < 0.005
        and 0 <= uniform.min()
        and uniform.max() < 1
    )
    assert abs(normal.mean()) < 0.01 and abs(normal.std() - 1) < 0.01 and abs((normal**4).mean() - 3) < 0.1
    dropped = nn.functional.dropout(create.ones(300, 300, **how), 0.25).numpy()
    assert abs((dropped == 0).mean() - 0.25) < 0.01 and np.allclose(dropped[dropped != 0], 4 / 3)
    halves = np.split(uniform, SIZE)
    assert not np.array_equal(halves[0], halves[1])  # shards have numbers of their own


# ------------------------------------------------------------------ modules


def law_a_module_becomes_global_in_place() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    shared = net[0].weight
    net.extra = shared
    weights = [p.detach().clone() for p in net.parameters()]
    assert net.to_global(every(), B) is net and net.extra is net[0].weight and isinstance(net.extra, nn.Parameter)
    for parameter, before in zip(net.parameters(), weights):
        near(parameter, _from_first(before))
    assert net[1].running_mean.is_global and net[1].num_batches_tracked.is_global
    net.to_global(sbp=B)
    twin = copy.deepcopy(net)
    near(twin[0].weight, _from_first(weights[0]))
    assert twin[0].weight.requires_grad and twin.extra is twin[0].weight
    twin.to_global(sbp=S(0))
    assert twin[1].running_mean.sbp == twin[0].weight.sbp == (S(0),) and twin[1].num_batches_tracked.sbp == (
        B,
    )  # which has no dim to split
    near(twin[0].weight, _from_first(weights[0]))
    net.to_local()
    assert not isinstance(net[0].weight, GlobalTensor)
    assert torch.equal(net[0].weight, _from_first(weights[0]))


def _from_first(value: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(value.to_global(every(), B).numpy())


def law_batch_norm_sees_the_whole_batch() -> None:
    x = torch.randn(12, 6, 4, generator=torch.Generator().manual_seed(1))
    reference, net = nn.BatchNorm1d(6), nn.BatchNorm1d(6)
    net.to_global(every(), B)
    for sbp in (S(0), S(1), B, P):
        near(net(spread(x, every(), sbp)), reference(x))
        near(net.running_var, reference.running_var)
    for tensors in (net._parameters, net._buffers):
        tensors.update(
            {
                name: nn.Parameter(t.to_global(sbp=S(0))) if t.requires_grad else t.to_global(sbp=S(0))
                for name, t in tensors.items()
                if t.dim()
            }
        )
    near(net(spread(x, every(), S(0))), reference(x))
    near(net.running_mean, reference.running_mean)
    assert net.running_mean.sbp == (S(0),) and net.num_batches_tracked.item() == 5


def law_many_tensors_are_updated_at_once() -> None:
    values = [torch.randn(6, 4, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    for sbps in ([S(0)] * 4, [B, S(1), S(0), B]):
        for make in (
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
            lambda p: torch.optim.Adam(p, 0.1, foreach=True),
            lambda p: torch.optim.AdamW(p, 0.1, fused=True),
            lambda p: torch.optim.Adagrad(p, 0.1),
            lambda p: torch.optim.RMSprop(p, 0.1, centered=True),
        ):
            plain = [nn.Parameter(v.clone()) for v in values]
            ours = [nn.Parameter(spread(v, every(), sbp)) for v, sbp in zip(values, sbps)]
            for parameters in (plain, ours):
                optimizer = make(parameters)
                for _ in range(3):
                    optimizer.zero_grad()
                    sum((p**2).sum() for p in parameters).backward()
                    optimizer.step()
            for one, other in zip(ours, plain):
                near(one, other)


def law_a_scaler_sees_an_overflow_of_any_rank() -> None:
    scaler = flow.amp.GradScaler(init_scale=4.0)
    x = nn.Parameter(create.ones(SIZE * 2, placement=every(), sbp=S(0)))
    optimizer = torch.optim.SGD([x], 1.0)
    for factor, expected in ((1.0, 0.0), (float("inf"), 0.0)):
        optimizer.zero_grad()
        weights = torch.ones(SIZE * 2)
        weights[-1] = factor
        scaler.scale((x * spread(weights, every(), S(0))).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        near(x.detach(), torch.full((SIZE * 2,), expected))
    assert scaler.get_scale() == 2.0


# ------------------------------------------------------------------ errors


def law_what_cannot_be_is_refused_on_every_rank() -> None:
    place = every()
    x, local = create.ones(4, 6, placement=place, sbp=S(0)), torch.ones(4, 6)
    for mix in (
        lambda: x + local,
        lambda: local @ x.t(),
        lambda: x.copy_(local),
        lambda: torch.cat([x, local]),
        lambda: x + torch.tensor(1.0),
    ):
        raises("Got input tensors with inconsistent attributes!", mix)
    raises("Got input tensors with inconsistent attributes!", lambda: local.copy_(x))
    other = create.ones(4, 6, placement=placement("cpu", [0]), sbp=B)
    raises("Expected all tensors to be on the same placement", lambda: x + other)
    near(x + 1, torch.full((4, 6), 2.0))
    raises("placement and sbp together", lambda: local.to_global(place))
    raises("placement= and sbp= together", lambda: create.ones(3, placement=place, sbp=None))
    raises("(1 vs 2)", lambda: local.to_global(placement("cpu", [list(range(SIZE))]), B))
    raises("(2 vs 1)", lambda: x.to_global(sbp=[B, B]))
    raises("cannot be split along dim 2", lambda: x.to_global(sbp=S(2)))
    raises("names ranks [9]", lambda: local.to_global(placement("cpu", [9]), B))
    raises("Split axis must not be negative", lambda: S(-1))
    raises("no balanced split", lambda: torch.ones(1 if RANK == 0 else 3).to_global(place, S(0)))
    raises("no balanced split", lambda: torch.ones(1 + RANK).to_global(place, B))
    raises("one dtype", lambda: torch.ones(2, dtype=torch.float32 if RANK else torch.float64).to_global(place, S(0)))
    raises("equally many dims", lambda: torch.ones([2] * (1 + RANK)).to_global(place, S(0)))
    raises("only support broadcast or split", lambda: create.rand(3, placement=place, sbp=P))
    raises("only support broadcast or split", lambda: create.randperm(3, placement=place, sbp=P))
    raises("Expected global tensor for to_local", local.to_local)
    raises("Expected global tensor", local.global_to_global)
    raises("Expected global tensor for global_id", local.global_id)
    raises("takes a placement, an sbp", x.to_global)
    raises("global_to_global", x.local_to_global)
    raises("is not pickled", lambda: pickle.dumps(x))
    raises(
        "there is no device", lambda: create.ones(2, placement=placement("cuda", [0]), sbp=B)
    ) if not torch.cuda.is_available() else None
    raises("sbp is flow.sbp.split", lambda: x.to_global(sbp="S(0)"))
    raises("is a flow.placement", lambda: local.to_global("cpu", B))
    raises("one layout", lambda: torch.optim.Adam([_p_with_grad()], fused=True).step())
    raises("broadcast", lambda: x + create.ones(5, placement=place, sbp=B))
    near(x * 2, torch.full((4, 6), 2.0))  # and the ranks still meet


def _p_with_grad() -> Any:
    parameter = nn.Parameter(create.ones(4, placement=every(), sbp=P))
    parameter.grad = create.ones(4, placement=every(), sbp=P)
    return parameter


# ------------------------------------------------------------------ files


def law_what_is_saved_in_one_layout_is_loaded_in_any() -> None:
    values = {"w": torch.arange(35.0).reshape(7, 5), "n": torch.arange(6), "flags": torch.arange(4) > 1}
    folder = Path(tempfile.gettempdir()) / f"global_tensors_{os.environ['MASTER_PORT']}"
    for place in meshes():
        for writer in (0, 1):
            sbp = [S(0)] * len(place.hierarchy)
            shared = {name: spread(value, place, sbp) for name, value in values.items()}
            saved = {
                **shared,
                "tied": [shared["w"]],
                "parameter": nn.Parameter(spread(values["w"], place, [P] * len(sbp))),
                "step": 3,
            }
            flow.save(saved, folder / "state", global_dst_rank=writer)
            found = flow.load(folder / "state", global_src_rank=1 - writer)
            assert (
                found["step"] == 3 and isinstance(found["parameter"], nn.Parameter) and found["parameter"].requires_grad
            )
            for name, value in values.items():
                assert found[name].placement == placement("cpu", [1 - writer]) and found[name].sbp == (B,)
                near(found[name].to_global(placement=place, sbp=sbp), value)
            near(found["tied"][0], values["w"])
            near(found["parameter"], values["w"])
            local = flow.load(folder / "state")
            assert torch.equal(local["w"], values["w"]) and torch.equal(local["flags"], values["flags"])
            found["w"].sum().item()  # every rank has read
    if RANK == 0:
        (folder / "file").write_text("in the way")
    create.ones(1, placement=every(), sbp=B).sum().item()
    raises(
        "it is a file" if RANK == 0 else "rank 0 could not save",
        lambda: flow.save(saved, folder / "file", global_dst_rank=0),
    )
    raises("No valid load method found", lambda: flow.load(folder / "nothing", global_src_rank=1))
    create.ones(1, placement=every(), sbp=P).sum().item()
    if RANK == 0:
        shutil.rmtree(folder)


def law_a_state_dict_goes_into_a_module_of_another_layout() -> None:
    first, second = nn.Linear(4, 6), nn.Linear(4, 6)
    first.to_global(every(), B).to_global(sbp=S(0))
    second.to_global(every(), B)
    second.load_state_dict(first.state_dict())
    near(second.weight.detach(), torch.from_numpy(first.weight.numpy()))  # of a parameter too
    assert second.weight.sbp == (B,)
    raises("inconsistent attributes", lambda: second.load_state_dict(nn.Linear(4, 6).state_dict()))
    elsewhere = {
        name: value.to_global(placement("cpu", [1]), B) for name, value in first.state_dict().items()
    }  # as one rank reads it from a file
    second.weight.data.zero_()
    second.load_state_dict(elsewhere)
    near(second.weight.detach(), torch.from_numpy(first.weight.numpy()))
    assert second.weight.placement == every()


def law_a_sharded_checkpoint_is_read_in_any_layout_with_the_same_bits() -> None:
    values = {"w": torch.randn(7, 5, generator=torch.Generator().manual_seed(1)), "n": torch.arange(3)}
    folder = Path(tempfile.gettempdir()) / f"global_shards_{os.environ['MASTER_PORT']}"
    places = [*meshes(), placement("cpu", [1])]
    create.ones(1, placement=every(), sbp=B)  # the ranks have met
    for number, place in enumerate(places):
        sbp = [S(0)] * len(place.hierarchy)
        dcp.save(
            {name: spread(value, place, sbp) for name, value in values.items()}, checkpoint_id=folder / str(number)
        )
        for other in places:
            for layout in (B, S(0)):
                found = {
                    name: spread(torch.zeros_like(value), other, [layout] * len(other.hierarchy))
                    for name, value in values.items()
                }
                dcp.load(found, checkpoint_id=folder / str(number))
                for name, value in values.items():
                    assert np.array_equal(found[name].numpy(), value.numpy())
    raises("has no blocks", lambda: create.ones(2, placement=every(), sbp=P).__create_chunk_list__())
    if RANK == 0:
        shutil.rmtree(folder)
