"""Systems put together from parts by name: they learn where there is a proof, and are refused where
there is none.
"""

import math
from collections.abc import Callable

import dp_accounting as dp
import numpy as np
import pytest
import torch

import dpfl
from dpfl.algorithms import from_name
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.conftest import ledger_of

Train = Callable[..., dpfl.Result]

COMBINED = {
    "ali's steps with haar noise": {
        "steps": "ali",
        "clipping": "haar",
        "haar_weights": "orthonormal",
    },
    "als's steps, a pull": {"steps": "als", "prox": 0.1},
    "hellinger weights, controls": {"weights": "similarity", "controls": True, "tau": 2},
    "haar noise, adam": {
        "clipping": "haar",
        "haar_weights": "orthonormal",
        "optimiser": "adam",
        "rate": 0.01,
        "noise_multiplier": 0.8,
    },
    "uploads, by size, a pull": {
        "where": "uploads",
        "prox": 0.1,
        "tau": 5,
        "weights": "size",
        "rate": 0.3,
    },
    "a round, quantile, momentum": {
        "where": "round",
        "clipping": "quantile",
        "tau": 5,
        "noise_multiplier": 0.1,
        "server_momentum": 0.5,
    },
    "a round, hellinger weights": {
        "where": "round",
        "weights": "similarity",
        "tau": 5,
        "rate": 0.2,
    },
    "uploads, a contrast": {"where": "uploads", "objective": "contrastive", "tau": 5, "rate": 0.1},
    "a round, a perturbation": {"where": "round", "objective": "perturbed", "tau": 5, "rate": 0.1},
    "nothing, a pull and a contrast": {
        "where": "none",
        "objective": "contrastive",
        "prox": 0.1,
        "tau": 5,
        "rate": 0.1,
    },
    "nothing, a pull and controls": {
        "where": "none",
        "prox": 0.1,
        "controls": True,
        "tau": 5,
        "rate": 0.1,
    },
}


@pytest.mark.parametrize("name", COMBINED)
def test_parts_combine_and_learn(train: Train, federation: Federation, name: str) -> None:
    noise = {"round": 0.1, "uploads": 0.01}.get(str(COMBINED[name].get("where")), 0.8)
    options = {"sampling_rate": 0.3, "rate": 0.7, "noise_multiplier": noise} | COMBINED[name]
    algorithm = from_name("custom", **options)
    result = train(federation, algorithm, rounds=8, accountant="rdp")
    assert result.accuracy > 0.3
    assert result.privacy.unit == algorithm.unit
    assert (result.privacy.proven < math.inf) == (algorithm.unit != "none")
    assert result.privacy.claimed is None


REFUSED = {
    "histogram must be a positive number": {"weights": "similarity", "histogram_noise": 0.0},
    "noise in every step": {"where": "round", "steps": "ali", "noise_multiplier": 1.0},
    "plain SGD only": {"steps": "als", "optimiser": "adam", "noise_multiplier": 1.0},
    "set noise_multiplier": {"steps": "ali"},
    "Control variates": {"where": "round", "controls": True, "noise_multiplier": 1.0},
    "gradients of plain cross-entropy": {"objective": "contrastive", "noise_multiplier": 1.0},
    "clip the gradients of plain": {"objective": "perturbed", "noise_multiplier": 1.0},
    "single update; use": {"where": "round", "objective": "contrastive", "noise_multiplier": 1.0},
    "without control variates": {"where": "none", "objective": "contrastive", "controls": True},
    "no objective 'contrast'; did you mean 'contrastive'": {"objective": "contrast"},
    "where = 'steps'": {"clipping": "quantile"},
    "where = 'none'": {"where": "none", "clipping": "quantile"},
    "where = 'uploads'": {"where": "uploads", "clipping": "public-median"},
    "hides one sample and not a whole client": {
        "where": "uploads",
        "weights": "similarity",
        "noise_multiplier": 1.0,
    },
    "did you mean": {"where": "step"},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_combination_without_a_proof_is_refused_with_the_reason(reason: str) -> None:
    with pytest.raises(DpflError, match=reason):
        from_name("custom", **REFUSED[reason])


def test_hellinger_weights_of_a_round_move_nobody_else_and_cost_no_more(
    train: Train, federation: Federation
) -> None:
    """A weight is made of its own client's labels, at most 1, and the divisor is public: the sum is
    as sensitive as before.
    """
    algorithm = from_name(
        "custom", where="round", weights="similarity", noise_multiplier=1.0, clip=0.5
    )
    answers = {client: np.array([client + 1.0, 2.0, 0.0]) for client in range(4)}
    weights = algorithm.weights.of([10] * 4, answers)
    without = algorithm.weights.of([10] * 4, {client: answers[client] for client in (0, 1, 3)})
    assert torch.equal(weights[[0, 1, 3]], without[[0, 1, 3]])
    assert float(weights.max()) <= 1
    assert algorithm.weights.usual([10] * 4) == 1.0
    result = train(federation, algorithm, rounds=2, accountant="rdp")
    assert result.privacy.unit == "client"
    assert ledger_of(result, "federation") == {dp.GaussianDpEvent(1.0): 2}
    assert not list((result.folder / "ledger").glob("client-*"))
