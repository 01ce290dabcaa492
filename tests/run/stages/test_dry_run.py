"""What fails without private data fails before anything is debited, and leaves nothing behind."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dpfl
from dpfl.algorithms import Algorithm, dp_fedavg, fedavg, fedavg_dp, ldp_fl, moon, pe_dpfl
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel, cnn
from dpfl.run.stages.checks import check_run
from dpfl.run.stages.dry_run import dry_run
from dpfl.run.stages.model_for_data import model_for_data

SOUND = fedavg_dp(sampling_rate=0.1, noise_multiplier=1.0)
Train = Callable[..., dpfl.Result]


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("no such word")


class Backward(nn.Module):
    """Fails where gradients are computed alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.head(x.flatten(1))
        return (
            scores
            if not torch.is_grad_enabled()
            else scores + self.head.weight.expand(10, 784)[:3, :9]
        )


MODELS = {
    "nine outputs": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 9)),
        r"needs 10 outputs.* returns \(10, 9\)",
    ),
    "wrong input size": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(700, 10)),
        r"fails on samples.*\(1, 28, 28\)",
    ),
    "three dimensions": (
        lambda: nn.Sequential(nn.Linear(28, 10), nn.Flatten(1, 2)),
        r"the model returns \(10, 28, 10\)",
    ),
    "a forward pass that raises": (Failing, "KeyError: 'no such word'"),
}
SYSTEMS = [SOUND, ldp_fl(noise_multiplier=1.0), dp_fedavg(noise_multiplier=1.0), fedavg()]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
@pytest.mark.parametrize("make", MODELS)
def test_a_model_that_cannot_be_trained_is_refused_before_anything_is_made(
    train: Train, federation: Federation, tmp_path: Path, make: str, system: Algorithm
) -> None:
    module, said = MODELS[make]
    with pytest.raises(DpflError, match=said) as refused:
        train(federation, system, rounds=1, model=module())
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_backward_pass_that_raises_is_refused(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    with pytest.raises(DpflError, match="RuntimeError"):
        train(federation, SOUND, rounds=1, model=Backward())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rate", [1e39, 1e300])
def test_a_step_beyond_all_bounds_is_refused(
    train: Train, federation: Federation, tmp_path: Path, rate: float
) -> None:
    with pytest.raises(DpflError, match="leaves all bounds: lower the rate"):
        train(federation, fedavg_dp(noise_multiplier=1.0, rate=rate), rounds=1)
    assert not (tmp_path / "run").exists()


def test_a_rate_that_is_no_number_is_refused() -> None:
    for rate in (float("inf"), float("nan"), 0.0):
        with pytest.raises(DpflError, match="learning rate"):
            SGD(rate)


def test_a_model_that_no_machine_holds_is_refused(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    with pytest.raises(DpflError, match="cannot be built"):
        train(
            federation,
            SOUND,
            rounds=1,
            model=dpfl.models.Model("mlp", (("hidden", 10**12), ("activation", "relu"))),
        )
    assert not (tmp_path / "run").exists()


def test_weights_and_randomness_are_as_before_and_few_samples_are_computed(
    federation: Federation,
) -> None:
    model = model_for_data(cnn(), federation, seed=0)
    vector, state = model.flat.read(), torch.get_rng_state()
    sizes: list[int] = []
    first_layer = next(layer for layer in model.flat.module.modules() if not [*layer.children()])
    first_layer.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    dry_run(model, SOUND)
    assert 0 < sum(sizes) <= 16, "a handful, whatever the client has"
    assert torch.equal(model.flat.read(), vector)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_divides_by_the_norm_of_its_samples_is_not_refused(
    train: Train, federation: Federation
) -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(784, 10)

        def forward(self, x: Tensor) -> Tensor:
            flat = x.flatten(1)
            return self.head(flat / flat.norm(dim=1, keepdim=True))

    assert (
        train(
            federation,
            Algorithm("plain", LocalTraining(SGD(0.1)), fedavg().steps),
            rounds=1,
            model=Normalised(),
        ).rounds
        == 1
    )


@pytest.mark.parametrize(
    "system", [moon(), pe_dpfl(noise_multiplier=1.0)], ids=lambda system: system.name
)
def test_a_model_whose_last_layer_counts_is_tried_on_no_sample(
    federation: Federation, system: Algorithm
) -> None:
    """Fault: the first sample of the first client was, without a word in any ledger."""
    seen = []
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    module[0].register_forward_hook(lambda layer, given, made: seen.append(given[0].clone()))
    check_run(system, federation, dpfl.Budget(rounds=1), FlatModel(module, federation.task))
    assert seen
    assert not any(x.any() for x in seen)
