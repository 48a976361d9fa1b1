#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Preference training (DPO) by TRL of a LoRA adapter over a frozen base: dpo.py MODEL JSONL OUT

MODEL: a Hugging Face directory with a tokenizer. JSONL: lines with "prompt", "chosen" and "rejected". The
base lies in the store, and is read from MODEL; without its adapter it is the reference too. Needs torch,
transformers, accelerate, peft, trl and datasets.
"""

import pathlib
import sys

import datasets
import peft
import torch
import transformers
import trl

import strata.torch

if len(sys.argv) != 4:
    sys.exit(__doc__)
directory, data, out = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
rows = datasets.load_dataset("json", data_files=data, split="train")
trainer = trl.DPOTrainer(
    model=transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32),
    args=trl.DPOConfig(
        output_dir=out, use_cpu=True, bf16=False, per_device_train_batch_size=2, logging_steps=1,
        num_train_epochs=1, report_to=[],
    ),  # fmt: skip
    train_dataset=rows,
    processing_class=tokenizer,
    peft_config=peft.LoraConfig(r=8, target_modules="all-linear"),
)
model = trainer.model


def a_step():
    """The passes of a step of TRL's: the model's, and without the adapter the reference's."""
    tokens = torch.arange(32)[None]
    loss = model(input_ids=tokens, labels=tokens).loss
    with torch.no_grad(), model.disable_adapter():
        model(input_ids=tokens)
    return loss


pathlib.Path(out, "nvme").mkdir(parents=True)
state = strata.torch.offload(
    model,
    a_step,
    {"nvme": f"{out}/nvme"},
    weights=directory,
    keep=["base_model.model.lm_head.weight"],  # TRL computes the log-probabilities with it
)
trainer.optimizer = optimizer = strata.torch.Optimizer(state, lr=1e-3)
optimizer.attach(trainer)
trainer.train()
model.save_pretrained(f"{out}/adapter")
