"""Models of sequences: what they see, and clipped sums by the quick kernels against gradients made
sequence by sequence.
"""

import pytest
import torch
from torch import Tensor

import dpfl
from dpfl import models, tasks
from dpfl.data.tables.schema import FeatureLayout
from dpfl.errors import DpflError
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
from dpfl.models import FlatModel
from dpfl.models.columns import on_columns
from tests.gradients.gradient_reference import compare
from tests.gradients.test_losses import one_by_one

COUNT, PLACES, VOCABULARY = 7, 6, 9
SMALL = [models.gru(width=8), models.transformer(width=8, layers=2, heads=2)]
LABELLED = [
    models.gru(width=8, vocabulary=VOCABULARY),
    models.transformer(width=8, layers=1, heads=2, vocabulary=VOCABULARY),
]


def drawn() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randint(0, VOCABULARY, (COUNT, PLACES), generator=generator) for _ in range(2))
    y[0, 2:] = y[1] = -100
    return x, y


@pytest.mark.parametrize(
    ("model", "parameters"), [(models.gru(), 35_280), (models.transformer(), 77_392)]
)
def test_the_documented_sizes(model, parameters):
    module = model.build((64,), 80, seed=0)
    assert sum(p.numel() for p in module.parameters()) == parameters
    text = " ".join(getattr(models, model.name).__doc__.split())
    assert f"{parameters:,} parameters for 80 tokens" in text


@pytest.mark.parametrize("model", SMALL, ids=lambda m: m.name)
def test_a_place_sees_itself_and_what_was_before(model):
    module = model.build((PLACES,), VOCABULARY, seed=0)
    x, _ = drawn()
    changed = x.clone()
    changed[:, 3] = (changed[:, 3] + 1) % VOCABULARY
    before, after = module(x), module(changed)
    assert before.shape == (COUNT, PLACES, VOCABULARY)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6)
    assert ((before[:, 3:] - after[:, 3:]).abs().amax(dim=2) > 1e-6).all()


@pytest.mark.parametrize("model", SMALL, ids=lambda m: m.name)
def test_the_quick_kernels_are_exact_for_the_next_token(model):
    task, (x, y) = tasks.NextToken(VOCABULARY), drawn()
    module = model.build((PLACES,), VOCABULARY, seed=0)
    computed = ClippedGradients(FlatModel(module, task))
    compare(computed, x, y, one_by_one(module, task, x, y))
    assert isinstance(computed.passes.current, LayerPass)


@pytest.mark.parametrize("model", LABELLED, ids=lambda m: m.name)
def test_the_quick_kernels_are_exact_for_labels_of_sequences(model):
    task, x = tasks.MultiClass(3), drawn()[0].float()
    module, y = model.build((PLACES,), 3, seed=0), torch.arange(COUNT) % 3
    computed = ClippedGradients(FlatModel(module, task))
    compare(computed, x, y, one_by_one(module, task, x, y))
    assert isinstance(computed.passes.current, LayerPass)


def test_a_transformer_is_exact_by_torch_func_too():
    task, (x, y) = tasks.NextToken(VOCABULARY), drawn()
    module = SMALL[1].build((PLACES,), VOCABULARY, seed=0)
    computed = ClippedGradients(FlatModel(module, task))
    computed.passes.current = RowPass(computed.model)
    compare(computed, x, y, one_by_one(module, task, x, y))
    assert computed.passes.current._gradients == computed.passes.current._by_vmap


def test_embedded_categories_are_exact_by_the_quick_kernels():
    task, features = tasks.Binary(), FeatureLayout(2, (3, 4))
    module = on_columns(models.mlp(hidden=5, embedding=3), features).build((4,), 1, seed=0)
    numbers, codes = (
        torch.randn(COUNT, 2),
        torch.stack([torch.arange(COUNT) % 3, torch.arange(COUNT) % 4], dim=1),
    )
    x, y = torch.cat([numbers, codes.float()], dim=1), (torch.arange(COUNT) % 2).float()
    computed = ClippedGradients(FlatModel(module, task))
    compare(computed, x, y, one_by_one(module, task, x, y))
    assert isinstance(computed.passes.current, LayerPass)


def test_what_does_not_fit_is_one_sentence():
    with pytest.raises(DpflError, match="rows of tokens"):
        models.gru().build((1, 28, 28), 10, seed=0)
    with pytest.raises(DpflError, match="multiple of twice the heads"):
        models.transformer(width=10, heads=4)
    with pytest.raises(DpflError, match=r"vocabulary is .*: give a whole number"):
        models.gru(vocabulary=0)


@pytest.mark.parametrize("model", SMALL, ids=lambda m: m.name)
def test_sequences_train_privately(train, model):
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, VOCABULARY, (240, 1), generator=generator)
    text = (starts + torch.arange(PLACES + 1)) % VOCABULARY  # the next token is this one and 1
    x, y = text[:, :-1], text[:, 1:]
    source = dpfl.data.tensors(
        x[:200], y[:200], x[200:], y[200:], classes=VOCABULARY, task="tokens"
    )
    federation = source.split(clients=2, how=dpfl.data.IID())
    system = dpfl.algorithms.fedavg_dp(
        tau=5, sampling_rate=0.5, clip=1.0, noise_multiplier=0.7, rate=2.0
    )
    result = train(federation, system, model=model, epsilon=200.0, rounds=8)
    assert result.metrics["perplexity"] < 4
