# SPDX-License-Identifier: Apache-2.0
"""Trains a small llama model in plain PyTorch, fp32, on the samples of a run, and compares the losses of its steps with
those of the run's metrics.

    losses_torch.py MODEL TOKENS METRICS ROWS LENGTH LR LIMIT DEVICE      exit status 77: no PyTorch that can use DEVICE

MODEL is a directory in Transformers' format with f32 weights, TOKENS a file of 16-bit tokens, METRICS a run's
metrics.jsonl. The run has --shuffle off, --schedule constant, --clip 0, --weight-decay 0, --betas 0.9,0.999.
"""

import json
import struct
import sys

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
from torch.nn import functional


def read_tensors(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        assert about["dtype"] == "F32", f"{name} is {about['dtype']}"
        begin, end = about["data_offsets"]
        floats = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = floats.reshape(about["shape"])
    return tensors


class Llama:
    def __init__(self, model, device):
        with open(f"{model}/config.json", encoding="utf-8") as file:
            self.config = json.load(file)
        tensors = read_tensors(f"{model}/model.safetensors")
        self.weights = {name: tensor.to(device).requires_grad_() for name, tensor in tensors.items()}
        self.device = device

    def norm(self, x, name):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[name + ".weight"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def turn(self, x):
        half = x.shape[-1] // 2
        theta = self.config["rope_parameters"]["rope_theta"]
        rates = theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * rates
        cos, sin = (f(angles).float().to(self.device) for f in (torch.cos, torch.sin))
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attend(self, x, layer):
        heads, keys = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = self.config["head_dim"]

        def of(name, count):
            return self.linear(x, f"{layer}.{name}").unflatten(-1, (count, size)).transpose(1, 2)

        q, k, v = self.turn(of("q_proj", heads)), self.turn(of("k_proj", keys)), of("v_proj", keys)
        k, v = (each.repeat_interleave(heads // keys, 1) for each in (k, v))
        scores = q @ k.transpose(-1, -2) / size**0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=self.device).triu(1)
        scores = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.linear((scores @ v).transpose(1, 2).flatten(-2), f"{layer}.o_proj")

    def loss(self, rows):
        x = self.weights["model.embed_tokens.weight"][rows[:, :-1]]
        for i in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            x = x + self.attend(self.norm(x, f"{layer}.input_layernorm"), f"{layer}.self_attn")
            h = self.norm(x, f"{layer}.post_attention_layernorm")
            gate = functional.silu(self.linear(h, f"{layer}.mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(h, f"{layer}.mlp.up_proj"), f"{layer}.mlp.down_proj")
        logits = self.linear(self.norm(x, "model.norm"), "lm_head")
        return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def main():
    model, tokens, metrics, rows, length, lr, limit, device = sys.argv[1:9]
    rows, length = int(rows), int(length)
    if device.startswith("cuda") and not torch.cuda.is_available():
        print("PyTorch has no GPU here")
        return 77
    torch.backends.cuda.matmul.allow_tf32 = False
    with open(metrics, encoding="utf-8") as file:
        wanted = [row["loss"] for row in map(json.loads, file) if "loss" in row]
    with open(tokens, "rb") as file:
        data = file.read()
    ids = torch.tensor(struct.unpack(f"<{len(data) // 2}H", data), device=device)
    llama = Llama(model, device)
    adamw = torch.optim.AdamW(llama.weights.values(), lr=float(lr), betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    worst = 0
    for step, want in enumerate(wanted):
        first = step * rows
        batch = torch.stack([ids[i * length : (i + 1) * length + 1] for i in range(first, first + rows)])
        loss = llama.loss(batch)
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        worst = max(worst, abs(loss.item() - want) / want)
    print(f"{len(wanted)} losses differ by up to {worst:.1e} from those of PyTorch {torch.__version__}, limit {limit}")
    return int(not wanted or worst > float(limit))


sys.exit(main())
