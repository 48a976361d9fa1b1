# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model on the GPU over a store against the same model with torch.optim.AdamW: losses,
the same bits wherever the state lies and again, the memory of the device, and the time of a step.

    store.py SCRATCH PLUGIN_PATH        exit status 77: PyTorch has no GPU here
"""

import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
if not torch.cuda.is_available():
    print("PyTorch has no GPU here")
    sys.exit(77)

import strata
import strata.torch
from torch import nn

WIDTH, LAYERS, VOCABULARY, ROWS, LENGTH, STEPS = 512, 6, 1000, 4, 128, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            each.view(*x.shape[:2], 8, -1).transpose(1, 2)
            for each in self.mix(self.norm1(x)).chunk(3, dim=-1)
        )
        scores = (q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5).softmax(dim=-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, tokens):
        x = self.embed(tokens) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches():
    draw = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        yield torch.randint(0, VOCABULARY, (ROWS, LENGTH + 1), generator=draw).cuda()


def loss_of(model, batch):
    logits = model(batch[:, :-1]).float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def model_of(dtype):
    torch.manual_seed(3)
    return Model().to(dtype)


def run(model, step):
    losses, times = [], []
    for batch in batches():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = loss_of(model, batch)
        loss.backward()
        step()
        losses.append(loss.detach())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return [loss.item() for loss in losses], statistics.median(times[2:])


def plain():
    model = model_of(torch.float32).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    return run(model, step)


def offloaded(dtype, **options):
    """Losses, seconds, statistics and weights."""
    model = model_of(dtype)
    options = {"threads": 4, "decay_all": True, "plugin_path": sys.argv[2], **options}
    example = next(batches())
    state = strata.torch.offload(model, lambda: loss_of(model, example), options, device="cuda")
    optimizer = strata.torch.Optimizer(state, lr=1e-3)
    losses, seconds = run(model, optimizer.step)
    weights = {name: value.clone() for name, value in state.state_dict().items()}
    counts = state.store.statistics()
    state.store.close()
    return losses, seconds, counts, weights


def problems_of_dlpack():
    """A unit by torch.from_dlpack, on the stream that it was acquired with: no copy is made."""
    options = {"device": "cuda", "device_memory": "64MiB", "threads": 4, "recipe": "fp32"}
    units = [strata.Unit("a", {"a": (3, 5)})]
    with strata.Store(units, {**options, "plugin_path": sys.argv[2]}) as store:
        store.load(lambda name, first, out: out.fill(7))
        store.begin()
        stream = torch.cuda.current_stream().cuda_stream
        memory = store.acquire("a", "forward", stream=stream)["a"]
        shown = torch.from_dlpack(memory)
        is_right = shown.shape == (3, 5) and bool((shown == 7).all())
        is_copy = shown.data_ptr() != memory.address
        del memory
        try:
            store.release()
            is_held = False
        except strata.UsageError:
            is_held = True
        del shown
        store.discard()
    found = {"other values": not is_right, "a copy": is_copy, "not held": not is_held}
    return [f"DLPack of a unit: {name}" for name, is_so in found.items() if is_so]


def main():
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    expected, plain_s = plain()
    small = {"device_memory": "64MiB", "host_memory": "96MiB", "nvme": [sys.argv[1]]}
    runs = {
        "all on the device": offloaded(torch.float32, device_memory="2GiB"),
        "state in host memory": offloaded(torch.float32, device_memory="64MiB"),
        "state on a drive": offloaded(torch.float32, **small),
        "again": offloaded(torch.float32, **small),
    }
    problems = problems_of_dlpack()
    first = runs["all on the device"]
    worst = max(abs(a - b) / abs(b) for a, b in zip(first[0], expected))
    if worst > 2e-5:
        problems.append(f"losses differ from AdamW's by {worst:.1e}")
    for name, (losses, _, _, weights) in runs.items():
        same = all(torch.equal(weights[key], value) for key, value in first[3].items())
        if losses != first[0] or not same:
            problems.append(f"{name}: other bits than with all on the device")
    low = offloaded(torch.bfloat16, **small)
    if max(abs(a - b) / abs(b) for a, b in zip(low[0], expected)) > 5e-2:
        problems.append("bf16: losses are not those of float32")
    print(f"worst difference from AdamW {worst:.1e}")
    print(f"AdamW of PyTorch: {1e3 * plain_s:.1f} ms a step")
    for name, (_, seconds, counts, _) in [*runs.items(), ("bf16, on a drive", low)]:
        print(
            f"{name}: {1e3 * seconds:.1f} ms a step, {counts.device_bytes >> 20} MiB of the device, "
            f"{counts.host_bytes >> 20} MiB of host memory"
        )
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


main()
