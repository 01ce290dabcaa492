"""The same run as a Flower app in its simulation on Ray, where each client has Opacus. Data and
module stay in the Ray workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.utils import parameters_to_vector

from benchmarks import run_common as common
from benchmarks.common import Clock
from benchmarks.run_documented import Client as DocumentedClient
from benchmarks.run_opacus import Client, epsilon

client_app = ClientApp()


@lru_cache(maxsize=1)
def _client() -> Client | DocumentedClient:
    torch.set_num_threads(1)
    federation = common.federation()
    if os.environ["BENCH_MODE"] == "documented":
        return DocumentedClient(federation, common.NOISE, common.TAU, common.BATCH, kept=False)
    return Client(
        federation,
        os.environ["BENCH_MODE"],
        common.NOISE,
        common.TAU,
        common.sampling_rate(federation.sizes[0]),
    )


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Trains one client for a round."""
    client = _client()
    client.module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    before = client.steps
    client.train(
        int(context.node_config["partition-id"]),
        parameters_to_vector(client.module.parameters()).detach(),
    )
    content = {
        "arrays": ArrayRecord(client.module.state_dict()),
        "metrics": MetricRecord({"steps": client.steps - before, "num-examples": common.BATCH}),
    }
    return Message(content=RecordDict(content), reply_to=message)


def simulation(rounds: int, mode: str) -> Iterator[dict[str, Any]]:
    """Yields repetitions of a run in the simulation."""
    os.environ["BENCH_MODE"] = mode  # for the processes that Ray starts
    federation = common.federation()
    yield {}
    while True:
        clock, figures = Clock(), {"steps": 0}
        module = common.initial()
        run_simulation(
            _server_app(module, rounds, clock, figures),
            client_app,
            num_supernodes=common.CLIENTS,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {"num_cpus": 2},
            },
        )
        right = common.accuracy(module, federation.test.x, federation.test.y)
        total_epsilon = epsilon(rounds * common.TAU, common.sampling_rate(federation.sizes[0]))
        yield (
            clock.read()
            | figures
            | {"noise": common.NOISE, "accuracy": right, "epsilon": total_epsilon}
        )


def _server_app(
    module: torch.nn.Module, rounds: int, clock: Clock, figures: dict[str, Any]
) -> ServerApp:
    app = ServerApp()

    def tick(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:
            clock.tick()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=common.CLIENTS
        )
        result = strategy.start(
            grid, ArrayRecord(module.state_dict()), num_rounds=rounds, evaluate_fn=tick
        )
        module.load_state_dict(result.arrays.to_torch_state_dict())
        mean = sum(float(metrics["steps"]) for metrics in result.train_metrics_clientapp.values())
        figures["steps"] = round(mean * common.CLIENTS)

    return app
