#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning by TRL of a LoRA adapter over a frozen base: sft_lora.py MODEL JSONL OUT

MODEL: a Hugging Face directory with a tokenizer. JSONL: lines with "text". The base lies in the store,
and is read from MODEL. Needs torch, transformers, accelerate, peft, trl and datasets.
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
model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear"))
tokens = torch.arange(32)[None]
pathlib.Path(out, "nvme").mkdir(parents=True)
state = strata.torch.offload(
    model,
    lambda: model(input_ids=tokens, labels=tokens).loss,
    {"nvme": f"{out}/nvme"},
    weights=directory,
    keep=["base_model.model.lm_head.weight"],  # TRL computes the loss with it
)
optimizer = strata.torch.Optimizer(state, lr=1e-3)
trainer = trl.SFTTrainer(
    model=model,
    args=trl.SFTConfig(
        output_dir=out, use_cpu=True, bf16=False, per_device_train_batch_size=2, logging_steps=1,
        num_train_epochs=1, loss_type="nll", report_to=[],
    ),  # fmt: skip
    train_dataset=rows,
    processing_class=tokenizer,
    optimizers=(optimizer, None),
)
optimizer.attach(trainer)
trainer.train()
model.save_pretrained(f"{out}/adapter")
