import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpfl.client.dataset import ClientDataset
from dpfl.client.descent.drift import Drift
from dpfl.client.descent.local_training import plain_steps, private_steps
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.errors import DpflError
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import All, Flat, Keyed, Release

X, Y = torch.randn(10, 5, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def by_hand(
    prox: float, correction: torch.Tensor | None, steps: int = 4, rate: float = 0.3
) -> torch.Tensor:
    module = network()
    start = torch.cat([p.detach().flatten().clone() for p in module.parameters()])
    for _ in range(steps):
        found = torch.autograd.grad(F.cross_entropy(module(X), Y), list(module.parameters()))
        here = torch.cat([p.detach().flatten() for p in module.parameters()])
        gradient = torch.cat([g.flatten() for g in found]) + prox * (here - start)
        gradient = gradient if correction is None else gradient + correction
        nn.utils.vector_to_parameters(here - rate * gradient, module.parameters())
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("prox", [0.0, 0.5])
@pytest.mark.parametrize("corrected", [False, True])
def test_plain_and_private_steps_add_the_drift_to_every_gradient(
    prox: float, corrected: bool
) -> None:
    size = FlatModel(network()).layout.trainable
    correction = torch.linspace(-0.1, 0.1, size) if corrected else None
    expected = by_hand(prox, correction)
    local, data = (
        LocalTraining(SGD(0.3), batch_size=10, prox=prox),
        ClientDataset(X, Y, torch.arange(10), 10),
    )
    plain, private = FlatModel(network()), FlatModel(network())
    plain_steps(plain, data, 4, local, Keyed(0).generator, Drift(plain.read(), prox, correction))
    everything = Release(All(), Flat(1e6))
    drift = Drift(private.read(), prox, correction)
    private_steps(ClippedGradients(private), data, 4, local, everything, Keyed(0).generator, drift)
    assert torch.allclose(plain.read(), expected, atol=1e-5)
    assert torch.allclose(private.read(), expected, atol=1e-4)


@pytest.mark.parametrize("prox", [-1.0, float("nan"), float("inf")])
def test_a_pull_that_is_no_number_from_zero_up_is_refused(prox: float) -> None:
    with pytest.raises(DpflError, match="prox"):
        LocalTraining(SGD(0.1), prox=prox)
