#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A walk through strata.torch, cell by cell: walkthrough.py FOLDER [STEPS]

It trains a small Llama whose weights, gradients and optimizer state lie on a drive, in less memory
than they take. Needs torch and transformers. FOLDER: for scratch files, checkpoints and the model.
"""

# %% A model of Transformers. Any torch.nn.Module works.
import pathlib
import sys

import torch
import transformers

import strata
import strata.torch

if len(sys.argv) < 2:
    sys.exit(__doc__)
folder = pathlib.Path(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
(folder / "nvme").mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=6,
    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip
model = transformers.LlamaForCausalLM(config)
text = torch.tensor(list(pathlib.Path(__file__).read_bytes()))  # it learns this file


def loss_of(model):
    begin = torch.randint(0, len(text) - 64, (8,))
    tokens = torch.stack([text[i : i + 64] for i in begin])
    return model(input_ids=tokens, labels=tokens).loss


# %% A budget that is too small is refused before anything runs, with the least that fits.
options = {"nvme": str(folder / "nvme"), "threads": 1}
try:
    strata.torch.offload(model, lambda: loss_of(model), {**options, "host_memory": "64KiB"})
except strata.DoesNotFit as error:
    print(error)

# %% Offload the model. The example runs once and shows in which order the model uses its modules.
state = strata.torch.offload(model, lambda: loss_of(model), {**options, "host_memory": "8MiB"})
print(state.plan.text)

# %% Train it as any other model: optimizer, scheduler, clipping, activation checkpointing.
optimizer = strata.torch.Optimizer(state, lr=3e-3, clip=1.0, checkpoints=folder / "checkpoints")
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
model.gradient_checkpointing_enable()
model.train()
losses = []
for step in range(steps):
    loss = loss_of(model)
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    print(f"step {step + 1}  loss {losses[-1]:.3f}  gradients {optimizer.result.grad_norm:.2f}")
print(state.store.statistics())

# %% Evaluate and generate between steps.
model.eval()
with torch.no_grad():
    print("loss", loss_of(model).item())
prompt = text[None, :16]
print(bytes(model.generate(prompt, max_new_tokens=32, do_sample=False, pad_token_id=0)[0].tolist()))

# %% Save for Transformers, and for a resume.
model.save_pretrained(folder / "model")
saved = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
torch.save(saved, folder / "saved.pt")

# %% Gradients are in the store: what cannot work says what to call.
try:
    model.lm_head.weight.grad
except strata.UsageError as error:
    print(error)

# %% Resume: the checkpoint has the weights and moments.
optimizer.load_state_dict(torch.load(folder / "saved.pt")["optimizer"])
model.train()
loss_of(model).backward()
optimizer.step()

# %% Take the model back. It is a plain one again.
state.restore()
print("plain again:", loss_of(model).item())
