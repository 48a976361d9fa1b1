# SPDX-License-Identifier: Apache-2.0
"""What users of PyTorch do between and within steps: each works or says what to do, nothing hangs, and
the steps that follow are those of torch.optim.AdamW."""

import copy
import itertools
import os
import signal
import threading

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import batch, loss_of, new_model, options, plain_losses  # noqa: E402

STEPS, BEFORE = 6, 3


class Case:
    """A model over a store, in the middle of its training."""

    def __init__(self, folder):
        self.folder = folder
        self.model = new_model()
        given = options(host_memory="440KiB", nvme=str(folder))
        self.state = strata.torch.offload(self.model, lambda: loss_of(self.model, 0), given)
        named = list(self.model.named_parameters())
        decays = [p for _, p in named if p.dim() >= 2]
        others = [p for _, p in named if p.dim() < 2]
        groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = strata.torch.Optimizer(self.state, groups, lr=1e-2)
        self.weight = self.model.blocks[0].up.weight

    def train(self, steps):
        losses = []
        for step in steps:
            self.optimizer.zero_grad()
            loss = loss_of(self.model, step)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


def evaluates(case):
    case.model.eval()
    with torch.no_grad():
        assert loss_of(case.model, 50).isfinite()
    case.model.train()


def saves_and_loads(case):
    torch.save(case.model.state_dict(), case.folder / "weights.pt")
    torch.save(case.optimizer.state_dict(), case.folder / "moments.pt")
    case.train([90, 91])
    assert not any(case.model.load_state_dict(torch.load(case.folder / "weights.pt")))
    case.optimizer.load_state_dict(torch.load(case.folder / "moments.pt"))


def loads_by_shards(case):
    saved = case.model.state_dict()
    names = list(saved)
    for first in range(0, len(names), 5):
        shard = {name: saved[name] for name in names[first : first + 5]}
        assert not case.model.load_state_dict(shard, strict=False).unexpected_keys


def drops_a_step(case):
    loss_of(case.model, 60).backward()
    case.model.zero_grad()
    case.optimizer.step()


def backward_of_a_part(case):
    """What gets no gradient counts as zero. The step is taken back after that."""

    def loss_of_a_part(model):
        return model.blocks[0](model.embedding(batch(1)[:, :-1])).square().sum()

    saved = copy.deepcopy((case.model.state_dict(), case.optimizer.state_dict()))
    twin = new_model()
    twin.load_state_dict(saved[0])
    loss_of_a_part(twin).backward()
    norm = nn.utils.clip_grad_norm_(twin.parameters(), 1e9)
    loss_of_a_part(case.model).backward()
    case.optimizer.step()
    assert case.optimizer.result.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    assert case.optimizer.result.left_out == 8  # two blocks, norm and head, forward and backward
    after = case.model.state_dict()
    assert not torch.equal(after["blocks.0.up.weight"], saved[0]["blocks.0.up.weight"])
    case.model.load_state_dict(saved[0])
    case.optimizer.load_state_dict(saved[1])


def clips_with_no_limit(case):
    loss_of(case.model, 61).backward()
    norm = case.optimizer.clip_grad_norm_(float("inf"))
    case.optimizer.zero_grad()
    assert norm.isnan()


def moves_to_where_it_is(case):
    assert case.model.to("cpu") is case.model.cpu() is case.model.float() is case.model
    assert "Linear" in repr(case.model)


def loader_with_workers(case):
    rows = torch.utils.data.TensorDataset(batch(1))
    loader = torch.utils.data.DataLoader(rows, batch_size=2, num_workers=1)
    assert sum(len(each[0]) for each in loader) == 4


def fork_in_the_middle_of_a_step(case):
    loss = loss_of(case.model, 62)
    child = os.fork()
    if child == 0:
        try:
            case.optimizer.zero_grad()
            loss_of(case.model, 63)
        except strata.Error as error:
            os._exit(7 if "fork" in str(error) else 8)
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    loss.backward()
    case.optimizer.zero_grad()


def interrupts(case):
    """Ctrl-C at any moment of a forward or a backward, which raises nothing else."""

    def interrupt(_signal, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    for delay in itertools.chain(*[(0.0004, 0.001, 0.002, 0.004, 0.008)] * 4):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                loss_of(case.model, 64).backward()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:  # also from the lines above
            interrupted += 1
        case.state.discard()
    signal.signal(signal.SIGALRM, before)
    assert interrupted > 1


def fails_in(where):
    def fails(case):
        def hook(*_given):
            raise RuntimeError("in the middle")

        module = case.model.blocks[1].up
        forward = where == "forward"
        add = module.register_forward_hook if forward else module.register_full_backward_hook
        handle = add(hook)
        with pytest.raises(RuntimeError, match="in the middle"):
            loss_of(case.model, 66).backward()
        handle.remove()

    return fails


def passes_without_a_weight(case):
    case.weight.requires_grad_(False)
    assert not case.weight.requires_grad
    with torch.no_grad():
        assert loss_of(case.model, 77).isfinite()
    case.weight.requires_grad = True


def steps_without_a_weight(case):
    case.weight.requires_grad_(False)
    try:
        loss_of(case.model, 78).backward()
        case.optimizer.step()
    finally:
        case.weight.requires_grad_(True)
        case.optimizer.zero_grad()


def zero_grad_elsewhere(case):
    """Of a module around the model and of one within it."""
    compiled = torch.compile(case.model, backend="eager")
    for module in (compiled, nn.Sequential(case.model), case.model.blocks[0]):
        module.zero_grad()
        loss_of(case.model, 79).backward()
        with pytest.raises(strata.UsageError, match="zero_grad.. of the optimizer or of the model"):
            module.zero_grad()
        case.optimizer.zero_grad()


def scaled(case):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(case.model, 80)).backward()
    try:
        scaler.step(case.optimizer)
    finally:
        case.optimizer.zero_grad()


def second_derivatives(case):
    for call in (
        lambda loss: loss.backward(create_graph=True),
        lambda loss: torch.autograd.grad(loss, case.seen, create_graph=True),
    ):
        hook = case.model.embedding.register_forward_hook(
            lambda _module, _inputs, output: setattr(case, "seen", output)
        )
        with pytest.raises(strata.UsageError, match="create_graph"):
            call(loss_of(case.model, 81))
        hook.remove()
        case.optimizer.zero_grad()


WORKS = {
    "nothing": lambda case: None,
    "zero_grad": lambda case: (case.optimizer.zero_grad(), case.model.zero_grad()),
    "eval": evaluates,
    "torch.save, torch.load": saves_and_loads,
    "load_state_dict by shards": loads_by_shards,
    "a step that is dropped": drops_a_step,
    "a step without gradients": lambda case: case.optimizer.step(),
    "backward of a part": backward_of_a_part,
    "clipping with no limit": clips_with_no_limit,
    "moves to where it is": moves_to_where_it_is,
    "workers of a loader": loader_with_workers,
    "fork": fork_in_the_middle_of_a_step,
    "Ctrl-C": interrupts,
    "an exception in the forward": fails_in("forward"),
    "an exception in the backward": fails_in("backward"),
    "requires_grad as it is": lambda case: case.weight.requires_grad_(True),
    "a pass without requires_grad": passes_without_a_weight,
    "zero_grad of other modules": zero_grad_elsewhere,
    "second derivatives": second_derivatives,
}
SAYS = {
    "param.grad": (lambda case: case.weight.grad, "optimizer.result.grad_norm"),
    "clip_grad_norm_": (
        lambda case: nn.utils.clip_grad_norm_(case.model.parameters(), 1.0),
        "optimizer.clip_grad_norm_",
    ),
    "GradScaler": (scaled, "GradScaler reads param.grad.*enabled=False"),
    "torch.export": (
        lambda case: torch.export.export(case.model, (batch(0)[:, :-1],)),
        "torch.export.*restore",
    ),
    "a step without requires_grad": (steps_without_a_weight, "requires_grad is off.*restore"),
    "to another type": (lambda case: case.model.to(torch.bfloat16), "before it is offloaded"),
    "cuda": (lambda case: case.model.cuda(), "before it is offloaded"),
    "another group": (
        lambda case: case.optimizer.add_param_group({"params": [case.weight]}),
        "all groups",
    ),
    "deepcopy": (lambda case: copy.deepcopy(case.model), "state_dict"),
    "torch.save of the model": (lambda case: torch.save(case.model, os.devnull), "state_dict"),
    "a weight of another shape": (
        lambda case: case.state.reload({"norm.bias": torch.zeros(3)}),
        r"norm.bias: shape \(3,\) is given, it has \(24,\)",
    ),
    "a copy of a weight": (lambda case: torch.ones(72, 24).copy_(case.weight.data), r"DPOTrainer.*\(\)\)$"),
    "values of a weight": (lambda case: case.weight.sum(), "state_dict"),
}


@pytest.fixture(scope="module")
def expected():
    return plain_losses(new_model(), STEPS)


@pytest.mark.parametrize("name", [*WORKS, *SAYS])
def test_training_goes_on_after(name, expected, tmp_path):
    case = Case(tmp_path)
    losses = case.train(range(BEFORE))
    if name in WORKS:
        WORKS[name](case)
    else:
        attempt, words = SAYS[name]
        with pytest.raises(strata.Error, match=words):
            attempt(case)
    losses += case.train(range(BEFORE, STEPS))
    assert losses == pytest.approx(expected, rel=2e-5)


def resized(model):
    model.resize_token_embeddings(70)


def merged(model):
    model.merge_and_unload()


def halved(model):
    model.lm_head.weight.half()


@pytest.mark.parametrize("change", [resized, merged, halved])
def test_changes_of_the_model_between_steps_say_to_restore_it_first(change):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 61}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False}
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
    if change is merged:
        peft = pytest.importorskip("peft")
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    loss = lambda: model(input_ids=batch(0), labels=batch(0)).loss  # noqa: E731
    state = strata.torch.offload(model, loss, options())
    loss().backward()
    assert state.step(1e-2).applied
    with pytest.raises(strata.UsageError, match=r"between steps.*call restore\(\) before"):
        change(model)
    state.restore()
    change(model)


def peak_of(action):
    """The most anonymous memory while action() runs, more than before it, in bytes."""

    def now():
        with open("/proc/self/status") as status:
            line = next(line for line in status if line.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    before, most, done = now(), [0], threading.Event()

    def watch():
        while not done.is_set():
            most[0] = max(most[0], now())
            done.wait(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        action()
    finally:
        done.set()
        thread.join()
    return most[0] - before


def test_saving_and_loading_weights_takes_little_memory(tmp_path):
    torch.manual_seed(1)
    layers = [nn.Linear(1024, 1024) for _ in range(16)]
    model = nn.Sequential(nn.Linear(8, 1024), nn.Sequential(*layers), nn.Linear(1024, 1))
    size = sum(p.numel() * 4 for p in model.parameters())
    assert size > 64 << 20
    x = torch.randn(2, 8)
    given = options(host_memory="32MiB", nvme=str(tmp_path))
    state = strata.torch.offload(model, lambda: model(x).square().mean(), given)
    optimizer = strata.torch.Optimizer(state, lr=1e-3)
    model(x).square().mean().backward()
    optimizer.step()
    path = tmp_path / "weights.pt"
    assert peak_of(lambda: torch.save(model.state_dict(), path)) < size / 4
    assert peak_of(lambda: model.load_state_dict(torch.load(path, mmap=True))) < size / 4
    part = {"0.bias": torch.zeros(1024)}
    assert peak_of(lambda: model.load_state_dict(part, strict=False)) < size / 4
    assert model.state_dict()["0.bias"].eq(0).all()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("copy-")]


@pytest.mark.parametrize("shards", [{}, {"max_shard_size": "8MB"}])
def test_saving_for_transformers_takes_little_memory(shards, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1536, num_hidden_layers=6, vocab_size=2048,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config)
    size = sum(p.numel() * 4 for p in model.parameters())
    assert size > 64 << 20
    tokens = torch.arange(16)[None]
    loss = lambda: model(input_ids=tokens, labels=tokens).loss  # noqa: E731
    given = options(host_memory="64MiB", nvme=str(tmp_path))
    state = strata.torch.offload(model, loss, given)
    loss().backward()
    assert state.step(1e-3).applied
    expected = loss().item()
    peak = peak_of(lambda: model.save_pretrained(tmp_path / "model", **shards))
    assert peak < size / 4, peak
    files = list((tmp_path / "model").glob("*.safetensors"))
    assert len(files) > 6 if shards else len(files) == 1
    del model, state
    twin = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model")
    assert twin(input_ids=tokens, labels=tokens).loss.item() == pytest.approx(expected, rel=1e-6)
