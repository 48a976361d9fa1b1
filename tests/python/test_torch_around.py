# SPDX-License-Identifier: Apache-2.0
"""Modules around a model over a store: what changes nothing works, and DistributedDataParallel is refused
where it would average nothing. Ranks whose gradients are averaged have the same buffers and
modules."""

import multiprocessing
import os

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import loss_of, new_model, options, plain_losses  # noqa: E402


def offloaded(**more):
    model = new_model()
    return model, strata.torch.offload(model, lambda: loss_of(model, 0), options(), **more)


def test_a_module_around_the_model_may_move_to_where_it_is():
    expected = plain_losses(new_model(), 3)
    model, state = offloaded()
    around = nn.Sequential(model)
    losses = []
    for step in range(3):
        assert around.to("cpu") is around.float() is around.cpu() is around
        loss = loss_of(around, step)
        around.to(torch.float32)
        loss.backward()
        around.to(torch.float32)
        losses.append(loss.item())
        assert state.step(1e-2).applied
    assert losses == pytest.approx(expected, rel=2e-5)
    for change in (around.half, around.double, lambda: around.to_empty(device="cpu"), model.blocks.bfloat16):
        with pytest.raises(strata.UsageError, match=r"\.weight: .*restore\(\) before"):
            change()
    assert all(values.isfinite().all() for values in model.state_dict().values())


def wrapped(rank, **given):
    model, state = offloaded(**given)
    around = nn.parallel.DistributedDataParallel(nn.Sequential(model))
    loss_of(around, rank).backward()
    return state.step(1e-2).grad_norm


def averaged(rank):
    return wrapped(rank, group=torch.distributed.group.WORLD)


def with_buffers(rank):
    model = new_model()
    model.register_buffer("flags", torch.tensor([rank == 0, rank == 1]))
    model.register_buffer("repeated", torch.tensor(float(rank)).expand(3))
    group = torch.distributed.group.WORLD
    strata.torch.offload(model, lambda: loss_of(model, 0), options(), group=group)
    return model.flags.tolist(), model.repeated.tolist()


def leaves_out(rank):
    """Each rank another block of equal size, and then none."""
    model, state = offloaded(group=torch.distributed.group.WORLD)
    block, model.blocks[rank] = model.blocks[rank], nn.Identity()
    loss_of(model, rank).backward()
    for _ in range(2):
        with pytest.raises(strata.UsageError, match="of different parameters.*shard=True.*zero_grad"):
            state.step(1e-2)
    state.zero_grad()
    model.blocks[rank] = block
    loss_of(model, rank).backward()
    return state.step(1e-2).grad_norm


def run_rank(rank, meeting, work, found):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        found.put(work(rank))
    except strata.UsageError as error:
        found.put(str(error))
    torch.distributed.barrier()
    os._exit(0)


def of_two_ranks(*arguments):
    processes = multiprocessing.get_context("spawn")
    found = processes.SimpleQueue()
    ranks = [processes.Process(target=run_rank, args=(rank, *arguments, found)) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(120)
    assert [each.exitcode for each in ranks] == [0, 0]
    return [found.get() for _ in ranks]


def norm_of_mean():
    plain = new_model()
    ((loss_of(plain, 0) + loss_of(plain, 1)) / 2).backward()
    return nn.utils.clip_grad_norm_(plain.parameters(), 1e9).item()


def test_distributed_data_parallel_needs_the_group_of_the_store(tmp_path):
    for text in of_two_ranks(tmp_path / "plain", wrapped):
        assert "it would average none (give offload() the process group as group=" in text
    assert of_two_ranks(tmp_path / "group", averaged) == pytest.approx([norm_of_mean()] * 2, rel=1e-5)


def test_ranks_have_the_buffers_of_the_first(tmp_path):
    assert of_two_ranks(tmp_path / "group", with_buffers) == [([True, False], [0.0] * 3)] * 2


def test_means_over_gradients_of_different_parameters_are_refused(tmp_path):
    assert of_two_ranks(tmp_path / "group", leaves_out) == pytest.approx([norm_of_mean()] * 2, rel=1e-5)
