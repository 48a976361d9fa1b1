# SPDX-License-Identifier: Apache-2.0
"""Modules around a model over a store: what changes nothing works, and DistributedDataParallel is refused
where it would average nothing."""

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


def wrapped(rank, meeting, kind, found):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    try:
        given = {"group": torch.distributed.group.WORLD} if kind == "group" else {}
        model, state = offloaded(**given)
        around = nn.parallel.DistributedDataParallel(nn.Sequential(model))
        loss_of(around, rank).backward()
        found.put(state.step(1e-2).grad_norm)
    except strata.UsageError as error:
        found.put(str(error))
    torch.distributed.barrier()
    os._exit(0)


def of_two_ranks(*arguments):
    processes = multiprocessing.get_context("spawn")
    found = processes.SimpleQueue()
    ranks = [processes.Process(target=wrapped, args=(rank, *arguments, found)) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(120)
    assert [each.exitcode for each in ranks] == [0, 0]
    return [found.get() for _ in ranks]


def test_distributed_data_parallel_needs_the_group_of_the_store(tmp_path):
    for text in of_two_ranks(tmp_path / "plain", "none"):
        assert "it would average none (give offload() the process group as group=" in text
    plain = new_model()
    ((loss_of(plain, 0) + loss_of(plain, 1)) / 2).backward()
    norm = nn.utils.clip_grad_norm_(plain.parameters(), 1e9).item()
    assert of_two_ranks(tmp_path / "group", "group") == pytest.approx([norm, norm], rel=1e-5)
