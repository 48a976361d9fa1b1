# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/pytorch run, and train."""

import concurrent.futures
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TREE = pathlib.Path(os.environ.get("STRATA_TREE") or pathlib.Path(__file__).parents[2])
LOSS_OF_NOTHING_LEARNT = 5.55  # the logarithm of 257 tokens
TEXT = "The quick brown fox jumps over the lazy dog. "


def run(name, *arguments, **more):
    command = [sys.executable, str(TREE / "examples/pytorch" / name), *map(str, arguments)]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= more
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def run_ranks(count, *arguments):
    """The example's lines, by processes as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        runs = [
            pool.submit(run, "ranks.py", *arguments, RANK=str(rank), **given)
            for rank in range(count)
        ]
        return [each.result() for each in runs][0]


def test_two_processes_have_the_losses_of_one(tmp_path):
    seen = []
    for count, network in ((1, "tcp"), (2, "copies"), (2, "tcp"), (2, "group")):
        output = run_ranks(count, tmp_path / f"{count}{network}", network)
        lines = re.findall(r"loss ([0-9.]+) norm ([0-9.]+)", output)
        assert len(lines) == 8
        seen.append([float(value) for line in lines for value in line])
    assert seen[0][0] != seen[0][2]
    for each in seen[1:]:
        assert each == pytest.approx(seen[0], rel=1e-5)
    assert seen[2] == seen[3]


@pytest.mark.parametrize("name", ["walkthrough", "ranks", "trainer", "sft_lora", "dpo"])
def test_without_arguments_they_say_how_they_are_used(name):
    file = TREE / "examples/pytorch" / f"{name}.py"
    if name in ("sft_lora", "dpo"):
        pytest.importorskip("trl")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and f"{name}.py " in done.stderr and "Traceback" not in done.stderr


def losses_in(output):
    """Those of the steps, as a Trainer prints them."""
    return [float(loss) for loss in re.findall(r"'loss': '?([0-9.naif]+)", output)]


def assert_falls(losses, steps):
    """Every step has the same text, so that each has a smaller loss than the one before it."""
    assert len(losses) == steps and losses[0] == pytest.approx(LOSS_OF_NOTHING_LEARNT, rel=0.05)
    assert all(later < earlier for earlier, later in zip(losses, losses[1:])), losses


@pytest.fixture
def directory(tmp_path):
    """A small model with a tokenizer of bytes."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(["<end>", *letters])}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    given = {"eos_token": "<end>", "pad_token": "<end>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=model, **given).save_pretrained(
        tmp_path / "model"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_walkthrough(tmp_path):
    output = run("walkthrough.py", tmp_path, 8)
    losses = [float(loss) for loss in re.findall(r"^step .* loss ([0-9.]+)", output, re.MULTILINE)]
    assert len(losses) == 8 and losses[-1] < losses[0] - 0.5
    assert "does not fit" in output and "optimizer.clip_grad_norm_" in output
    assert float(output.split("plain again:")[1]) < losses[0]


def test_the_trainer(directory, tmp_path):
    pytest.importorskip("accelerate")
    (tmp_path / "text.txt").write_text((TEXT + "\n") * 24)
    output = run("trainer.py", directory, tmp_path / "text.txt", tmp_path / "out")
    losses = losses_in(output)
    assert_falls(losses, 6)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    tokens = tokenizer(TEXT, return_tensors="pt")["input_ids"]

    def loss_of(path):
        model = transformers.LlamaForCausalLM.from_pretrained(path)
        with torch.no_grad():
            return model(input_ids=tokens, labels=tokens).loss.item()

    assert loss_of(directory) == pytest.approx(losses[0], rel=1e-3)
    assert loss_of(tmp_path / "out/model") < losses[-1]


def test_fine_tuning_of_an_adapter_by_trl(directory, tmp_path):
    for name in ("accelerate", "peft", "datasets", "trl"):
        pytest.importorskip(name)
    (tmp_path / "rows.jsonl").write_text((json.dumps({"text": TEXT}) + "\n") * 12)
    output = run("sft_lora.py", directory, tmp_path / "rows.jsonl", tmp_path / "out")
    assert_falls(losses_in(output), 6)
    assert (tmp_path / "out/adapter/adapter_model.safetensors").exists()


def test_preferences_by_trl(directory, tmp_path):
    for name in ("accelerate", "peft", "datasets", "trl"):
        pytest.importorskip(name)
    row = {"prompt": "The quick ", "chosen": "brown fox jumps", "rejected": "lazy dog sleeps"}
    (tmp_path / "rows.jsonl").write_text((json.dumps(row) + "\n") * 8)
    output = run("dpo.py", directory, tmp_path / "rows.jsonl", tmp_path / "out")
    losses = [float(loss) for loss in re.findall(r"'loss': '?([0-9.]+)", output)]
    assert len(losses) == 4 and losses[0] == pytest.approx(0.6931, abs=1e-4)  # ln 2
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.69
    assert (tmp_path / "out/adapter/adapter_model.safetensors").exists()


def test_the_strategy_of_lightning(tmp_path):
    pytest.importorskip("lightning")
    output = run("lightning_strategy.py", tmp_path / "out")
    losses = [float(loss) for loss in re.findall(r"^step .* loss ([0-9.]+)", output, re.MULTILINE)]
    assert len(losses) == 32 and losses[-1] < losses[0] - 0.3
