# SPDX-License-Identifier: Apache-2.0
"""Habits of PyTorch's users: optimizer, schedulers, state_dict, generate. Each works as with
torch.optim.AdamW, or says what to call."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import Model, batch, loss_of, new_model, options  # noqa: E402


def groups_of(model):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for n, p in named if "up" in n], "weight_decay": 0.3, "lr": 3e-3},
        {"params": [p for n, p in named if "up" not in n]},
    ]


def scheduler_of(optimizer):
    return LambdaLR(optimizer, [lambda step: 1 / (1 + step), lambda step: 0.9**step])


def scheduler_of_one(optimizer):
    return LambdaLR(optimizer, lambda step: 1 / (1 + step))


def train(model, optimizer, scheduler, steps, clip=None):
    losses = []
    for step in steps:
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            clip(0.5)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def plain(steps=6):
    model = new_model()
    optimizer = torch.optim.AdamW(groups_of(model), lr=1e-2, weight_decay=0.05)
    clip = lambda most: nn.utils.clip_grad_norm_(model.parameters(), most)  # noqa: E731
    losses = train(model, optimizer, scheduler_of(optimizer), range(steps), clip)
    return losses, model, optimizer


def offloaded(**more):
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    optimizer = strata.torch.Optimizer(state, groups_of(model), lr=1e-2, weight_decay=0.05, **more)
    return model, state, optimizer


def test_groups_schedulers_and_clipping_are_those_of_adamw():
    expected, twin, _ = plain()
    model, state, optimizer = offloaded()
    losses = train(model, optimizer, scheduler_of(optimizer), range(6), optimizer.clip_grad_norm_)
    assert losses == pytest.approx(expected, rel=2e-5)
    assert optimizer.result.grad_norm > 0.5
    for name, values in model.state_dict().items():
        torch.testing.assert_close(values, twin.state_dict()[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("by_path", [False, True])
def test_training_resumes_from_state_dicts(by_path, tmp_path):
    more = {"checkpoints": tmp_path / "checkpoints"} if by_path else {}
    expected, _, _ = plain()
    model, state, optimizer = offloaded(clip=0.5, **more)
    scheduler = scheduler_of(optimizer)
    train(model, optimizer, scheduler, range(3))
    saved = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    }
    torch.save(saved, tmp_path / "saved.pt")
    model, state, optimizer = offloaded(clip=0.5, **more)
    scheduler = scheduler_of(optimizer)
    loss_of(model, 9).backward()
    optimizer.step()
    saved = torch.load(tmp_path / "saved.pt")
    assert not any(model.load_state_dict(saved["model"]))
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    losses = train(model, optimizer, scheduler, range(3, 6))
    assert losses == pytest.approx(expected[3:], rel=2e-5)


def test_the_state_of_adamw_may_be_loaded_and_the_other_way_round():
    expected, _, _ = plain()
    _, twin, adamw = plain(3)
    model, state, optimizer = offloaded(clip=0.5)
    model.load_state_dict(twin.state_dict())
    optimizer.load_state_dict(adamw.state_dict())
    scheduler = scheduler_of(optimizer)
    for _ in range(3):
        scheduler.step()
    assert train(model, optimizer, scheduler, range(3, 5)) == pytest.approx(expected[3:5], rel=2e-5)
    model_state, optimizer_state = model.state_dict(), optimizer.state_dict()
    twin = new_model()
    twin.load_state_dict(model_state)
    adamw = torch.optim.AdamW(groups_of(twin), lr=1e-2)
    adamw.load_state_dict(optimizer_state)
    assert loss_of(twin, 5).item() == pytest.approx(expected[5], rel=2e-5)
    assert adamw.state[twin.norm.bias]["step"] == 5


def test_a_second_optimizer_for_other_parameters_is_refused():
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
    blocks, others = list(model.blocks.parameters()), [*model.embedding.parameters()]
    optimizer = strata.torch.Optimizer(state, blocks, lr=1e-2)
    with pytest.raises(strata.UsageError, match="one optimizer with groups"):
        strata.torch.Optimizer(state, others, lr=1e-2)
    optimizer = strata.torch.Optimizer(state, blocks, lr=1e-2)
    del optimizer
    strata.torch.Optimizer(state, lr=1e-2)


def test_parameters_may_have_names():
    losses = []
    for given in (lambda model: model.parameters(), lambda model: model.named_parameters()):
        model = new_model()
        state = strata.torch.offload(model, lambda: loss_of(model, 0), options())
        optimizer = strata.torch.Optimizer(state, given(model), lr=1e-2)
        losses.append(train(model, optimizer, scheduler_of_one(optimizer), range(3)))
    assert losses[0] == losses[1]


def test_losses_may_be_scaled():
    weights = []
    for scale in (1.0, 4096.0):
        model, state, optimizer = offloaded(clip=0.5)
        for step in range(3):
            (loss_of(model, step) * scale).backward()
            optimizer.step(gradient_scale=scale)
        weights.append((optimizer.result.grad_norm, copy.deepcopy(model.state_dict())))
    assert weights[0][0] == weights[1][0]
    assert all(torch.equal(values, weights[1][1][name]) for name, values in weights[0][1].items())


@pytest.mark.parametrize("norm", [0, 0.0, -1.0, float("nan")])
def test_a_norm_that_clips_nothing_is_refused(norm):
    model, state, optimizer = offloaded()
    with pytest.raises(strata.ConfigError, match="max_norm.*above 0"):
        optimizer.clip_grad_norm_(norm)


def test_an_optimizer_of_a_closed_store_says_so():
    model, state, optimizer = offloaded()
    loss_of(model, 0).backward()
    optimizer.step()
    state.restore()
    loss_of(model, 0).backward()
    with pytest.raises(strata.HandleError, match="step: restore.. has closed the store"):
        optimizer.step()
    for call in (state.restore, optimizer.state_dict, state.state_dict, lambda: state.step(1e-3)):
        with pytest.raises(strata.HandleError, match="restore.. has closed.*torch.optim"):
            call()


def test_a_store_that_was_closed_by_itself_has_no_weights_to_give_back():
    _, state, _ = offloaded()
    state.store.close()
    with pytest.raises(strata.HandleError, match="closed by itself, and the weights are gone"):
        state.restore()


def test_a_lost_state_is_not_restored():
    _, state, _ = offloaded()
    state.store.unload()
    with pytest.raises(strata.UsageError, match="the weights are lost .call load.. with a checkpoint"):
        state.restore()


def test_what_cannot_work_says_what_to_call():
    model, state, optimizer = offloaded()
    weight = model.blocks[0].up.weight
    for attempt, words in (
        (lambda: weight.grad, "optimizer.result.grad_norm"),
        (lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0), "optimizer.clip_grad_norm_"),
        (lambda: model.to(torch.bfloat16), "before it is offloaded"),
        (lambda: model.to("meta"), "before it is offloaded"),
        (lambda: model.half(), "before it is offloaded"),
        (lambda: copy.deepcopy(model), "state_dict"),
        (lambda: torch.save(model, io.BytesIO()), "state_dict"),
        (lambda: optimizer.add_param_group({"params": [weight]}), "all groups"),
        (lambda: strata.torch.Optimizer(state, nn.Linear(1, 1).parameters()), "not in the store"),
    ):
        with pytest.raises(strata.Error, match=words):
            attempt()
    assert model.to("cpu") is model.float() is model
    OneCycleLR(optimizer, 0.1, total_steps=9).step()
    loss_of(model, 0).backward()
    with pytest.raises(strata.ConfigError, match="cycle_momentum"):
        optimizer.step()
    with pytest.raises(strata.UsageError, match="zero_grad"):
        model.state_dict()
    with pytest.raises(strata.UsageError, match="optimizer.step"):
        loss_of(model, 1)
    model.zero_grad()
    assert model.state_dict()["norm.bias"].isfinite().all()


def test_evaluation_between_steps_changes_nothing():
    expected, _, _ = plain()
    model, state, optimizer = offloaded(clip=0.5)
    scheduler = scheduler_of(optimizer)
    losses = []
    for step in range(6):
        model.eval()
        with torch.no_grad() if step % 2 else torch.inference_mode():
            first, second = loss_of(model, 30), loss_of(model, 31)
        assert first.isfinite() and first != second
        model.train()
        losses += train(model, optimizer, scheduler, [step])
    assert losses == pytest.approx(expected, rel=2e-5)
    loss_of(model, 0).backward()
    model.eval()
    with torch.no_grad(), pytest.raises(strata.UsageError, match="evaluate after optimizer.step"):
        loss_of(model, 0)


def test_steps_without_gradients_change_nothing():
    model, state, optimizer = offloaded()
    before = model.state_dict()
    optimizer.step()
    loss_of(model, 0)
    optimizer.step()
    assert optimizer.result is None
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_next_step_works_after_an_exception(error, where):
    expected, _, _ = plain()
    model, state, optimizer = offloaded(clip=0.5)
    scheduler = scheduler_of(optimizer)
    losses = train(model, optimizer, scheduler, range(2))

    def fails(_module, _given, *_output):
        raise error("in the middle")

    module = model.blocks[1].up
    register = module.register_forward_pre_hook if where == "forward" else None
    hook = (register or module.register_full_backward_hook)(fails)
    with pytest.raises(error):
        loss_of(model, 8).backward()
    hook.remove()
    optimizer.zero_grad()
    losses += train(model, optimizer, scheduler, range(2, 6))
    assert losses == pytest.approx(expected, rel=2e-5)


def test_the_weight_decay_of_the_store_is_the_optimizers():
    model = new_model()
    state = strata.torch.offload(model, lambda: loss_of(model, 0), {**options(), "weight_decay": 0.25})
    assert strata.torch.Optimizer(state).param_groups[0]["weight_decay"] == 0.25
    for given in ({"lr": -1}, {"lr": "x"}, {"weight_decay": float("nan")}, {"clip": -1}):
        with pytest.raises(strata.ConfigError, match="give a number of at least 0"):
            strata.torch.Optimizer(state, **given)


@pytest.mark.parametrize("option", [{"groups": [{"match": "up.*", "lr_factor": 0.5}]}, {"freeze": "up.*"}])
def test_options_that_pytorch_says_otherwise_are_refused(option):
    model = new_model()
    with pytest.raises(strata.ConfigError, match="option (groups|freeze): .*give groups|requires_grad_"):
        strata.torch.offload(model, lambda: loss_of(model, 0), {**options(), **option})
    loss_of(model, 0).backward()


def test_updates_that_differ_by_parameter_are_refused():
    _, _, other = plain(2)
    given = other.state_dict()
    given["state"][1]["step"] = torch.tensor(5.0)
    model, state, optimizer = offloaded()
    before = state.state_dict()
    with pytest.raises(strata.ConfigError, match="updated 2 times and others up to 5"):
        optimizer.load_state_dict(given)
    after = state.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_model_of_transformers_generates_and_is_saved(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 61}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
    prompt = batch(1)[:2, :4]
    greedy = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **greedy)
    model.train()
    loss = lambda: model(input_ids=batch(0), labels=batch(0)).loss  # noqa: E731
    state = strata.torch.offload(model, loss, options())
    optimizer = strata.torch.Optimizer(state, lr=1e-2)
    model.eval()
    assert torch.equal(model.generate(prompt, **greedy), expected)
    model.train()
    for _ in range(3):
        loss().backward()
        optimizer.step()
    model.save_pretrained(tmp_path / "model")
    twin = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        wanted = twin(input_ids=batch(0), labels=batch(0)).loss
        torch.testing.assert_close(loss(), wanted)
    assert twin.lm_head.weight is twin.model.embed_tokens.weight
