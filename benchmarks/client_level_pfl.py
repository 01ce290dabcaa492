"""The same client-level runs with pfl, as pfl-research's own benchmark for PyTorch puts them
together.

Several processes as its guide to distributed simulations shows: the same script for each, with
PFL_WORKER_ADDRESSES and PFL_WORKER_RANK in its environment. torch.distributed then uses gloo.
Users' tensors are ready before training. Users are evaluated in the first round only, as pfl always
does, and no figure of a round includes that.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import MethodType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.client_level_work import CHECK_RATE, Work, few, network, test_of, users_of
from benchmarks.common import Clock
from benchmarks.run_common import accuracy
from benchmarks.run_dpfl import change
from benchmarks.step_common import memory_format_of


def run(
    work: dict[str, Any],
    rounds: int,
    memory_format: str,
    threads: int = 1,
    processes: int = 1,
    rank: int = 0,
    addresses: str = "",
) -> Iterator[dict[str, Any]]:
    """Yields a check, then repetitions of a run of pfl."""
    torch.set_num_threads(threads)
    job = Work(**work)
    others = []
    if processes > 1 and rank == 0:
        addresses = ",".join(f"localhost:{_free_port()}" for _ in range(processes))
        options = {
            "work": work,
            "rounds": rounds,
            "memory_format": memory_format,
            "threads": threads,
        }
        others = [
            _other(options | {"processes": processes, "rank": n, "addresses": addresses})
            for n in range(1, processes)
        ]
    if processes > 1:
        os.environ |= {"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)}
    layout = memory_format_of(memory_format) if job.network != "mlp" else torch.contiguous_format
    users = [(x.contiguous(memory_format=layout), y) for x, y in users_of(job)]
    yield {"results": {"round without noise": _noiseless(job, users)}}
    while True:
        module = _with_loss(network(job)).to(memory_format=layout)
        clock, figures = Clock(), {}
        federated_averaging(module, users, job, rounds, clock, figures)
        right = accuracy(module, *test_of(job)) if rank == 0 else 0.0
        yield clock.read() | figures | {"steps": module.steps * processes, "accuracy": right}
        for other in others:
            other.wait()


def _other(options: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Starts a further process, which runs the check and one repetition like this one."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.worker",
        "benchmarks.client_level_pfl:run",
        json.dumps(options),
    ]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert other.stdin is not None
    other.stdin.write(b"next\nnext\n")
    other.stdin.close()
    return other


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def federated_averaging(
    module: nn.Module,
    users: list[tuple[Tensor, Tensor]],
    job: Work,
    rounds: int,
    clock: Clock,
    figures: dict[str, Any],
    exact: bool = False,
) -> None:
    """`exact` is for the check: every user once, whole batches, three steps, no noise."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism
    from pfl.privacy.privacy_mechanism import NormClippingOnly

    np.random.seed(0)
    torch.manual_seed(0)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    sampler = get_user_sampler("minimize_reuse" if exact else "random", list(range(len(users))))
    data = FederatedDataset.from_slices(dict(enumerate(users)), sampler)
    mechanism = NormClippingOnly(2, job.clip) if exact else GaussianMechanism(job.clip, job.noise)
    backend = SimulatedBackend(
        data, data, postprocessors=[WeightByUser(), CentrallyAppliedPrivacyMechanism(mechanism)]
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            val_cohort_size=0,
            train_cohort_size=len(users) if exact else job.cohort,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_learning_rate=CHECK_RATE if exact else job.rate,
            local_num_epochs=3 if exact else job.epochs,
            local_batch_size=job.images if exact else job.batch,
        ),
        NNEvalHyperParams(local_batch_size=10_000),
        callbacks=[_callback(clock, figures)],
        send_metrics_to_platform=False,
    )


def _callback(clock: Clock, figures: dict[str, Any]) -> Any:
    from pfl.callback.base import TrainingProcessCallback

    class Ticks(TrainingProcessCallback):
        def after_central_iteration(
            self, aggregate_metrics: Any, model: Any, *, central_iteration: int
        ) -> Any:
            clock.tick()
            metrics = {str(name): value for name, value in aggregate_metrics}
            noise = [value for name, value in metrics.items() if "DP noise std" in name]
            figures["deviation"] = float(noise[0].overall_value) if noise else 0.0
            return super().after_central_iteration(
                aggregate_metrics, model, central_iteration=central_iteration
            )

    return Ticks()


def _with_loss(module: nn.Module) -> nn.Module:
    from pfl.metrics import Weighted

    def loss(self: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        self.steps += 1
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.eval()
        logits = self(x)
        return {"accuracy": Weighted(int((logits.argmax(1) == y).sum()), len(y))}

    module.steps = 0  # type: ignore[assignment]
    module.loss, module.metrics = MethodType(loss, module), MethodType(metrics, module)  # type: ignore[assignment]
    return module


def _noiseless(job: Work, users: list[tuple[Tensor, Tensor]]) -> str:
    module = _with_loss(network(job, dropout=False))
    before = network(job, dropout=False)
    federated_averaging(module, few(users), job, 1, Clock(), {}, exact=True)
    return change(before, module)
