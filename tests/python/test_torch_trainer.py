# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Transformers, Accelerate and TRL train a model over a store as they are."""

import json
import os
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

import strata.torch  # noqa: E402
from test_torch_sources import llama, loss_of_llama  # noqa: E402
from torch_models import batch  # noqa: E402


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        tokens = batch(index)[0]
        return {"input_ids": tokens, "labels": tokens.clone()}


def arguments(folder, **more):
    return transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=1,
        learning_rate=1e-2,
        lr_scheduler_type="linear",
        warmup_steps=2,
        max_grad_norm=0.5,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **more,
    )


class Recording(transformers.TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, _arguments, _state, _control, logs=None, **_more):
        if "loss" in logs:
            self.losses += [float(logs["loss"]), float(logs["grad_norm"])]


def train(folder, offloads, resume=False, group=None, **more):
    model = llama()
    model.train()
    optimizer = None
    if offloads:
        given = {"threads": 1, "accumulate": 2}
        state = strata.torch.offload(model, lambda: loss_of_llama(model, 0), given, group=group)
        optimizer = strata.torch.Optimizer(state, lr=1e-2, weight_decay=0.01)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    recording = Recording()
    trainer = transformers.Trainer(
        model=model,
        args=arguments(folder, **more),
        train_dataset=Rows(),
        eval_dataset=Rows(),
        optimizers=(optimizer, None),
        callbacks=[recording],
    )
    if offloads:
        optimizer.attach(trainer)
    trainer.train(resume_from_checkpoint=resume)
    return recording.losses, trainer, model


def test_the_trainer_of_transformers_saves_evaluates_and_resumes(tmp_path):
    expected, plain, _ = train(tmp_path / "plain", False)
    saves = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 2}
    losses, trainer, model = train(tmp_path / "run", True, **saves)
    assert len(losses) == 12
    assert losses == pytest.approx(expected, rel=1e-3)  # logged with few digits
    evaluated = trainer.evaluate()["eval_loss"]
    assert evaluated == pytest.approx(plain.evaluate()["eval_loss"], rel=2e-5)
    trainer.save_model(tmp_path / "model")
    twin = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model")
    with torch.no_grad():
        torch.testing.assert_close(loss_of_llama(twin, 3), loss_of_llama(model, 3))
    resumed, trainer, _ = train(tmp_path / "again", True, resume=str(tmp_path / "run/checkpoint-3"))
    assert resumed == pytest.approx(losses[6:], rel=1e-4)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(evaluated, rel=2e-5)


def test_the_trainer_compiles_the_model(tmp_path):
    compiles = {"torch_compile": True, "torch_compile_backend": "eager"}
    expected, _, _ = train(tmp_path / "plain", False)
    losses, _, _ = train(tmp_path / "run", True, **compiles)
    assert losses == pytest.approx(expected, rel=1e-3)  # logged with few digits


def test_a_loop_of_accelerate_accumulates():
    losses = []
    for offloads in (False, True):
        model = llama()
        torch.manual_seed(4)
        if offloads:
            given = {"threads": 1, "accumulate": 2}
            state = strata.torch.offload(model, lambda: loss_of_llama(model, 0), given)
            optimizer = strata.torch.Optimizer(state, lr=1e-2)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        loader = torch.utils.data.DataLoader(Rows(), batch_size=4)
        model, optimizer, loader, scheduler = accelerator.prepare(
            model, optimizer, loader, scheduler
        )
        if offloads:
            optimizer.optimizer.attach(accelerator)
        losses.append([])
        for given in loader:
            with accelerator.accumulate(model):
                loss = model(**given).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses[-1].append(loss.item())
        weights = accelerator.unwrap_model(model).state_dict()
        assert all(values.isfinite().all() for values in weights.values())
    assert losses[1] == pytest.approx(losses[0], rel=2e-5)
    assert len(losses[0]) == 6


RANK = """
import json, sys
import torch.distributed
from test_torch_trainer import train
torch.distributed.init_process_group("gloo")
offloads = sys.argv[2] == "strata"
group = torch.distributed.group.WORLD if offloads else None
losses, _, _ = train(sys.argv[1], offloads, group=group, ddp_backend="gloo")
print("losses", json.dumps(losses), flush=True)
"""


def losses_of_two_ranks(folder, kind):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    given["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), kind],
            env={**given, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    line = next(line for line in outputs[0].splitlines() if line.startswith("losses "))
    return json.loads(line.removeprefix("losses "))


def test_the_trainer_of_two_ranks_has_the_losses_of_distributed_data_parallel(tmp_path):
    expected = losses_of_two_ranks(tmp_path / "plain", "plain")
    losses = losses_of_two_ranks(tmp_path / "strata", "strata")
    assert len(losses) == 6
    assert losses == pytest.approx(expected, rel=1e-3)  # logged with few digits
