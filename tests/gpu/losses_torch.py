# SPDX-License-Identifier: Apache-2.0
"""Trains a small model in fp32 by PyTorch on the samples of a run, as Transformers has the model or, without that, a llama
written out here. Compares the losses of the steps with those of the run, and what the steps changed of each weight.

    losses_torch.py MODEL TOKENS RUN ROWS LENGTH LR LIMIT DEVICE          exit status 77: no PyTorch that can use DEVICE

MODEL is a directory in Transformers' format with f32 weights, TOKENS a file of 16-bit tokens, RUN the folder of a run
that has ended. The run has --shuffle off, --schedule constant, --clip 0, --weight-decay 0, --betas 0.9,0.999.
"""

import glob
import json
import math
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
        if about["dtype"] != "F32":
            return {}
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


class Transformers:
    def __init__(self, model, device):
        from transformers import AutoModelForCausalLM

        options = {"dtype": torch.float32, "attn_implementation": "eager"}
        self.model = AutoModelForCausalLM.from_pretrained(model, **options).to(device).eval()
        self.weights = dict(self.model.named_parameters())

    def loss(self, rows):
        logits = self.model(input_ids=rows[:, :-1], use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def model_of(folder, device):
    try:
        return Transformers(folder, device)
    except (ImportError, TypeError, ValueError):  # one that is too old knows other options, and fewer models
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            if json.load(file)["model_type"] == "llama":
                return Llama(folder, device)
        return None


def largest(values):
    """Infinity where there are none, or one is not a number."""
    return max(values) if values and all(map(math.isfinite, values)) else math.inf


def worst_change(model, adamw, before, run):
    """The largest distance of a tensor from PyTorch's, as a share of what the steps changed of it.

    AdamW divides gradients by their size. So those that are zero but for rounding, such as of a bias of keys, change their
    weights as much as others do, by noise: they are left out.
    """
    shares = []
    files = glob.glob(f"{run}/model/model*.safetensors")
    tensors = {name: tensor for file in files for name, tensor in read_tensors(file).items()}
    for name, tensor in tensors.items():
        if name in model.weights:  # not a tied head
            sizes = adamw.state[model.weights[name]]["exp_avg_sq"].sqrt().cpu()
            counted = sizes > 1e-3 * sizes.max()
            ours = model.weights[name].detach().cpu()
            distance, change = ((ours - other)[counted].norm() for other in (tensor, before[name]))
            shares.append((distance / change).item())
    return largest(shares)


def main():
    folder, tokens, run, rows, length, lr, limit, device = sys.argv[1:9]
    rows, length = int(rows), int(length)
    if device.startswith("cuda") and not torch.cuda.is_available():
        print("PyTorch has no GPU here")
        return 77
    torch.backends.cuda.matmul.allow_tf32 = False
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as file:
        wanted = [row["loss"] for row in map(json.loads, file) if "loss" in row]
    with open(tokens, "rb") as file:
        data = file.read()
    ids = torch.tensor(struct.unpack(f"<{len(data) // 2}H", data), device=device)
    model = model_of(folder, device)
    if model is None:
        print("Transformers is not installed, or does not know the model")
        return 77
    before = {name: tensor.detach().cpu().clone() for name, tensor in model.weights.items()}
    adamw = torch.optim.AdamW(model.weights.values(), lr=float(lr), betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    differences = []
    for step, want in enumerate(wanted):
        first = step * rows
        batch = torch.stack([ids[i * length : (i + 1) * length + 1] for i in range(first, first + rows)])
        loss = model.loss(batch)
        adamw.zero_grad()
        loss.backward()
        adamw.step()
        differences.append(abs(loss.item() - want) / want)
    most = 10 * float(limit)
    worst = largest(differences)
    change = worst_change(model, adamw, before, run)
    print(
        f"{len(wanted)} losses differ by up to {worst:.1e} from those of PyTorch {torch.__version__}, limit {limit}, "
        f"changes of weights by up to {change:.1e}, limit {most:.0e}"
    )
    return int(not (worst <= float(limit) and change <= most))


sys.exit(main())
