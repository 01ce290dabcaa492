"""MOON (Li, He and Song 2021): FedAvg whose clients keep their representations near the global
model's. Protects nothing.

Every client adds mu l_con to its loss, which draws what the last linear layer reads to what it
reads under the global model, and away from what it read under the client's own model of its last
round. The server reads that model off the upload: clients keep nothing. To a client without a last
round the global model stands for it, and the term is log 2 with no gradient. The paper's projection
head is left out, so that the model is that of the other systems; it tunes mu in {0.1, 1, 5, 10}.
"""

from __future__ import annotations

from dpfl.algorithms.options import cohort_of, weights_of
from dpfl.client.objectives import Contrastive
from dpfl.client.optimisers import optimiser as optimiser_of
from dpfl.client.task import LocalTraining
from dpfl.privacy import Release
from dpfl.server.algorithm import Algorithm
from dpfl.server.steps.policy import FixedSteps
from dpfl.server.update import ServerUpdate


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
    """tau steps on l - mu log(e^(s/T) / (e^(s/T) + e^(s'/T))), s = sim(z, z_glob), s' = sim(z,
    z_prev); then the mean.
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
