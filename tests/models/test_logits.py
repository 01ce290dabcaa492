"""Adapters on a frozen model: what is trained, clipped, noised, sent and saved is theirs alone
(with peft's: `make hf`).
"""

import copy

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import dpfl
from dpfl import models, tasks
from dpfl.errors import DpflError
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.models import FlatModel
from tests.conftest import StopsAfter
from tests.gradients.gradient_reference import compare

VOCABULARY, PLACES, COUNT = 7, 5, 8
TASK = tasks.NextToken(VOCABULARY)


class LowRank(nn.Module):
    """W x + B A x with W frozen (Hu et al. 2021)."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.lora_a = nn.Linear(frozen.in_features, rank, bias=False)
        self.lora_b = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.lora_b(self.lora_a(x))


def adapted() -> nn.Module:
    """A transformer of the catalogue, frozen but for adapters on its attention."""
    module = (
        models.transformer(width=8, layers=1, heads=2)
        .build((PLACES,), VOCABULARY, seed=0)
        .requires_grad_(False)
    )
    torch.manual_seed(0)
    attention = module.blocks[0].attention[1]
    attention.inwards, attention.outwards = (
        LowRank(attention.inwards, 2),
        LowRank(attention.outwards, 2),
    )
    return module


def drawn() -> tuple[Tensor, Tensor]:
    starts = torch.randint(0, VOCABULARY, (60, 1), generator=torch.Generator().manual_seed(0))
    text = (starts + torch.arange(PLACES + 1)) % VOCABULARY
    return text[:, :-1], text[:, 1:]


def test_only_what_is_trained_is_in_the_vector_and_the_rest_is_in_the_hash():
    flat = FlatModel(adapted(), TASK)
    assert all("lora" in name for name in flat.layout.names)
    assert flat.layout.size == flat.layout.trainable == 2 * (8 + 24) + 2 * (8 + 8)
    before = flat.fingerprint
    with torch.no_grad():
        flat.vector.add_(1.0)
    assert flat.fingerprint == before
    flat.module.embedding.weight.data[0, 0] += 1e-3
    assert flat.fingerprint != before


def test_gradients_of_adapters_are_exact_by_the_quick_kernels():
    module, (x, y) = adapted(), drawn()
    trained = [p for p in module.parameters() if p.requires_grad]
    losses = (
        TASK.losses(module(a[None]), b[None]).sum()
        for a, b in zip(x[:COUNT], y[:COUNT], strict=True)
    )
    rows = torch.stack(
        [torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)]) for loss in losses]
    )
    computed = ClippedGradients(FlatModel(module, TASK))
    compare(computed, x[:COUNT], y[:COUNT], rows)
    assert isinstance(computed.passes.current, LayerPass)


def test_adapters_train_are_resumed_and_load_without_dpfl(train, tmp_path):
    module, (x, y) = adapted(), drawn()
    source = dpfl.data.tensors(x[:40], y[:40], x[40:], y[40:], classes=VOCABULARY, task="tokens")
    federation = source.split(clients=2, how=dpfl.data.IID())
    system = dpfl.algorithms.fedavg_dp(tau=2, sampling_rate=0.5, noise_multiplier=1.0, rate=0.5)
    options = {"model": models.from_module(module), "epsilon": 50.0, "rounds": 3}
    result = train(federation, system, **options)
    with pytest.raises(KeyboardInterrupt):
        train(federation, system, out="stopped", progress=StopsAfter(2), **options)
    assert (
        train(federation, system, out="stopped", resume=True, **options).model_sha256
        == result.model_sha256
    )

    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert sum(tensor.numel() for tensor in saved.values()) == 96
    plain = copy.deepcopy(module)
    assert not plain.load_state_dict(saved, strict=False).unexpected_keys
    scores = plain(x[40:]).detach().numpy()
    assert TASK.metrics(scores, y[40:].numpy())["perplexity"] == pytest.approx(
        result.metrics["perplexity"], rel=1e-5
    )


def test_another_frozen_model_is_another_run(train):
    x, y = drawn()
    federation = dpfl.data.tensors(x, y, classes=VOCABULARY, task="tokens").split(
        clients=2, how=dpfl.data.IID()
    )
    system, module = (
        dpfl.algorithms.fedavg_dp(tau=1, sampling_rate=0.5, noise_multiplier=1.0, rate=0.5),
        adapted(),
    )
    with pytest.raises(KeyboardInterrupt):
        train(federation, system, model=module, epsilon=50.0, rounds=2, progress=StopsAfter(1))
    module.embedding.weight.data[0, 0] += 1e-3
    with pytest.raises(DpflError, match="model"):
        train(federation, system, model=module, epsilon=50.0, rounds=2, resume=True)


class Answer:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Answers(nn.Module):
    """As models of transformers: words in by name, an object out."""

    config = None

    def __init__(self) -> None:
        super().__init__()
        self.inside = adapted()

    def forward(self, input_ids: Tensor) -> Answer:
        return Answer(self.inside(input_ids))


def test_logits_are_taken_from_what_a_model_of_transformers_returns():
    given, (x, _) = Answers(), drawn()
    module = models.hugging_face(given).build((PLACES,), VOCABULARY, seed=0)
    assert torch.equal(module(x.float()), given.inside(x))
    assert {name.removeprefix("model.") for name in module.state_dict()} == set(given.state_dict())
    with pytest.raises(DpflError, match="ready model of transformers"):
        models.hugging_face(nn.Linear(2, 2))
