import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpfl.algorithms import dp_sgd_wav
from dpfl.models import FlatModel
from dpfl.privacy.mechanisms.noises.haar import Haar
from dpfl_papers.haar_energies import haar_energies


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def images(count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 6, generator=generator), torch.randint(
        3, (count,), generator=generator
    )


@pytest.mark.parametrize("by_layer", [False, True])
def test_energies_are_those_of_the_gradients_one_by_one(by_layer: bool) -> None:
    x, y = images()
    module = network()
    rows = []
    for image, label in zip(x, y, strict=True):
        module.zero_grad()
        F.cross_entropy(module(image[None]), label[None]).backward()
        rows.append(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]))
    layout = FlatModel(network()).layout
    haar = Haar((*layout.offsets[1:], layout.size) if by_layer else (layout.size,))
    found = haar_energies(network(), x, y, by_layer)
    assert found == pytest.approx(haar.energies(torch.stack(rows)).tolist(), rel=1e-4, abs=1e-9)
    assert sum(found) == pytest.approx(float(torch.stack(rows).square().sum(1).mean()), rel=1e-4)


def test_weights_that_match_have_less_noise_in_all_and_keep_the_multiplier() -> None:
    x, y = images()
    layout = FlatModel(network()).layout
    energies = haar_energies(network(), x, y, by_layer=True)
    made = dp_sgd_wav(
        noise_multiplier=1.3, haar_weights="matched", by_layer=True, energies=energies
    ).for_model(layout)
    plain = dp_sgd_wav(noise_multiplier=1.3, haar_weights="orthonormal", by_layer=True).for_model(
        layout
    )
    assert made.samples.noise_multiplier == 1.3
    assert made.samples.energy(layout.size) < 0.9 * plain.samples.energy(layout.size)
