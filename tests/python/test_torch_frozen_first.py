# SPDX-License-Identifier: Apache-2.0
"""A model that trains, whose first modules are frozen and compute under torch.no_grad(), has its weights
copied between steps as any other: by state_dict(), restore(), and the Trainer of Transformers."""

import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import strata  # noqa: E402
import strata.torch  # noqa: E402
from torch_models import options  # noqa: E402

WIDTH = 16


def blocks(count):
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)))


class Features(nn.Module):
    """no_grad is around the frozen modules, in the model's forward."""

    def __init__(self):
        super().__init__()
        self.frozen = blocks(2).requires_grad_(False)
        self.head = blocks(2)

    def forward(self, x):
        with torch.no_grad():
            x = self.frozen(x)
        return self.head(x)


class Distilled(nn.Module):
    """The example calls the teacher by itself, under no_grad; the student is another module."""

    def __init__(self):
        super().__init__()
        self.frozen = blocks(3).requires_grad_(False)
        self.head = blocks(2)

    def forward(self, x):
        return self.head(x)


def loss_of(model, step):
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step))
    if isinstance(model, Features):
        return model(x).sub(x.sin()).square().mean()
    with torch.no_grad():
        wanted = model.frozen(x)
    return model(x).sub(wanted).square().mean()


def new_model(kind):
    torch.manual_seed(5)
    return kind()


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("keep", [(), ["frozen.1.0.bias", "head.0.0.bias"]])
@pytest.mark.parametrize("kind", [Features, Distilled])
def test_weights_are_copied_between_steps_of_a_model_that_trains(kind, keep, tmp_path):
    twin = new_model(kind)
    adamw = torch.optim.AdamW(twin.head.parameters(), lr=1e-2)
    model = new_model(kind)
    state = strata.torch.offload(model, lambda: loss_of(model, 0), options(), keep=keep)
    optimizer = strata.torch.Optimizer(state, lr=1e-2, weight_decay=0.01)
    assert model.training

    def check():
        now = model.state_dict()
        for name, values in twin.state_dict().items():
            assert torch.equal(now[name], values) or not name.startswith("frozen")
            torch.testing.assert_close(now[name], values, rtol=1e-4, atol=1e-5)

    check()  # before the first step
    assert train(model, optimizer, [0]) == pytest.approx(train(twin, adamw, [0]), rel=2e-5)
    for _ in range(2):
        check()
    with torch.no_grad():
        loss_of(model, 9)  # an evaluation, as the model trains
    check()
    with state.evaluating():
        loss_of(model, 9)
    check()
    assert train(model, optimizer, [1]) == pytest.approx(train(twin, adamw, [1]), rel=2e-5)
    model.eval()
    with torch.no_grad():
        loss_of(model, 9)
    check()
    model.train()
    check()
    saved, weights = copy.deepcopy(optimizer.state_dict()), model.state_dict()
    path = state.save(tmp_path)
    expected = train(twin, adamw, [2, 3])
    assert train(model, optimizer, [2, 3]) == pytest.approx(expected, rel=2e-5)
    state.load(path)
    assert train(model, optimizer, [2, 3]) == pytest.approx(expected, rel=2e-5)
    model.load_state_dict(weights)
    optimizer.load_state_dict(saved)
    assert train(model, optimizer, [2, 3]) == pytest.approx(expected, rel=2e-5)
    check()
    loss_of(model, 4).backward()
    with pytest.raises(strata.UsageError, match="state_dict within a step"):
        model.state_dict()
    optimizer.zero_grad()
    state.restore()
    for name, values in new_model(kind).frozen.state_dict().items():
        assert torch.equal(model.frozen.state_dict()[name], values)


def test_a_trainer_writes_checkpoints_of_a_model_over_frozen_features(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Classifier(transformers.PreTrainedModel):
        config_class = transformers.ViTConfig

        def __init__(self, config):
            super().__init__(config)
            self.vit = transformers.ViTModel(config, add_pooling_layer=False).requires_grad_(False)
            self.head = nn.Linear(config.hidden_size, 10)
            self.post_init()

        def forward(self, pixel_values=None, labels=None):
            with torch.no_grad():
                features = self.vit(pixel_values).last_hidden_state[:, 0]
            logits = self.head(features)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(2)
    model = Classifier(transformers.ViTConfig(**sizes, image_size=16, patch_size=8)).train()
    image = torch.randn(3, 16, 16)
    example = lambda: model(image[None], torch.tensor([1]))["loss"]  # noqa: E731
    state = strata.torch.offload(model, example, options())
    optimizer = strata.torch.Optimizer(state, lr=1e-2, weight_decay=0.01)
    model.save_pretrained(tmp_path / "before")
    rows = [{"pixel_values": image * i, "labels": i} for i in range(4)]
    arguments = transformers.TrainingArguments(
        tmp_path / "out", per_device_train_batch_size=2, max_steps=4, save_steps=2, report_to=[],
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, optimizers=(optimizer, None)
    )
    optimizer.attach(trainer)
    trainer.train()
    assert state.updates() == 4
    saved = Classifier.from_pretrained(tmp_path / "out" / "checkpoint-4").state_dict()
    for name, values in model.state_dict().items():
        assert torch.equal(saved[name], values)
