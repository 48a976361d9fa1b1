#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Transformers over a store: trainer.py MODEL TEXT OUT

MODEL: a Hugging Face directory with a tokenizer; its weights are read tensor by tensor, so that the
model may be larger than memory. TEXT: a file of lines to train on. OUT: a new directory. Needs torch,
transformers and accelerate.
"""

import pathlib
import sys

import accelerate
import transformers

import strata.torch

if len(sys.argv) != 4:
    sys.exit(__doc__)
directory, text, out = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
lines = [line for line in pathlib.Path(text).read_text().splitlines() if line.strip()]
rows = [tokenizer(line, truncation=True, max_length=256) for line in lines]
collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)

with accelerate.init_empty_weights():
    config = transformers.AutoConfig.from_pretrained(directory)
    model = transformers.AutoModelForCausalLM.from_config(config)
model.tie_weights()
model.train()
pathlib.Path(out, "nvme").mkdir(parents=True)
state = strata.torch.offload(
    model,
    lambda: model(**collator(rows[:2])).loss,
    {"nvme": f"{out}/nvme", "accumulate": 2},
    weights=directory,
)
optimizer = strata.torch.Optimizer(state, lr=1e-4, checkpoints=f"{out}/checkpoints")
arguments = transformers.TrainingArguments(
    output_dir=out, use_cpu=True, per_device_train_batch_size=2, gradient_accumulation_steps=2,
    gradient_checkpointing=True, num_train_epochs=1, logging_steps=1, report_to=[],
)  # fmt: skip
trainer = transformers.Trainer(
    model=model, args=arguments, train_dataset=rows, data_collator=collator,
    processing_class=tokenizer, optimizers=(optimizer, None),
)  # fmt: skip
optimizer.attach(trainer)
trainer.train()
trainer.save_model(f"{out}/model")
