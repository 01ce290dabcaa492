"""MOON (Li, He and Song 2021, Algorithm 1): FedAvg with a contrastive loss against client drift.

Each client adds mu times the model-contrastive loss (3) to its own loss:

    l_con = -log(e^(s/T) / (e^(s/T) + e^(s'/T))),  s = sim(z, z_glob),  s' = sim(z, z_prev)

Here z is the input of the last linear layer, under the model in training, the global model, and
the client's own model of its last round. The server reads that last model off the upload, so
clients keep no state. For a client without an earlier round, the global model takes its place; the
term is then log 2 and has no gradient. The paper's projection head is left out, so that the model
is that of the other systems. The paper tunes mu in {0.1, 1, 5, 10}. It protects nothing.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, weights_of
from dpfl.client.descent.objectives import Contrastive
from dpfl.client.descent.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Release
from dpfl.server.aggregation.update import ServerUpdate
from dpfl.server.algorithm import Algorithm
from dpfl.server.steps.policy import FixedSteps


def moon(
    mu: float = 1.0,
    temperature: float = 0.5,
    tau: int = 5,
    rate: float = 0.1,
    batch_size: int = 64,
    optimiser: str = "sgd",
    cohort: int | None = None,
    weights: str = "size",
    server_rate: float = 1.0,
) -> Algorithm:
    """Builds MOON, which has no noise.

    Args:
        mu: Weight of the contrastive loss.
        temperature: Temperature T of the contrastive loss.
        tau: Local steps per round.
        rate: Learning rate of the local steps.
        batch_size: Samples per local step. These steps add no noise of their own.
        optimiser: Optimiser of the local steps: "sgd", "momentum", "adam" or "adagrad".
        cohort: Number of clients per round. By default all clients.
        weights: Weights of the clients: "size" (declared before training) or "uniform".
        server_rate: The server's learning rate eta_g along the mean update.

    Returns:
        The algorithm, ready for `dpfl.train`.
    """
    return Algorithm(
        name="moon",
        local=LocalTraining(
            optimiser_of(optimiser, rate), batch_size, objective=Contrastive(mu, temperature)
        ),
        steps=FixedSteps(tau),
        clients=Release(cohort_of(cohort)),
        weights=weights_of(weights),
        server=ServerUpdate(server_rate),
    )
