"""Plays games of `dpfl.audit` on other packages, used as they document it. `make peers` prints the
table of docs/peers.md.

Every case states the claim of a document and measures the published code. Where the code draws
independent Gaussian noise, epsilon follows from its spread: the movement by one client is measured
with almost no noise, and an upper bound on the deviation comes from 20,000 numbers (confidence
99.9 %). In all other games, a threshold that was fixed on separate draws decides (Clopper-Pearson,
95 %). delta is 1e-5.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dpfl.audit import distinguish
from dpfl.audit.bounds import deviation_at_most, epsilon_of
from dpfl.privacy import Keyed, accountant
from dpfl.privacy.accounting.events import gaussian

DELTA, SIZE, CERTAIN = 1e-5, 20_000, 0.999
QUIET = 1e-9


@dataclass(frozen=True)
class Row:
    """A mechanism with the claim of its package, the measurement and the verdict."""

    package: str
    mechanism: str
    claimed: str
    measured: str
    verdict: str

    def __str__(self) -> str:
        return (
            f"| {self.package} | {self.mechanism} | {self.claimed} | {self.measured} | "
            f"{self.verdict} |"
        )


def judge(package: str, mechanism: str, claimed: float, measured: float) -> Row:
    """Compares a lower bound with a claim."""
    verdict = "**refuted**" if measured > claimed else "consistent"
    return Row(package, mechanism, f"epsilon {claimed:.3f}", f"epsilon >= {measured:.3f}", verdict)


def by_spread(release: Callable[[bool, bool], np.ndarray]) -> float:
    """Returns a lower bound on the epsilon of a Gaussian mechanism.

    `release` takes two flags, for the canary and for almost no noise.
    """
    distance = float(np.linalg.norm(release(True, True) - release(False, True)))
    return epsilon_of(distance / deviation_at_most(release(False, False), CERTAIN), DELTA)


# Flower: strategies and mods


def flower() -> Iterator[Row]:
    """Yields the rows of Flower."""
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.task_id = identity.node_id = 1  # messages are made inside a run
    yield from flower_fixed()
    yield from flower_adaptive()
    yield from flower_local()
    yield from flower_masks()


def one_gaussian(multiplier: float) -> float:
    """Returns the epsilon of one Gaussian release."""
    return accountant("pld").epsilon({gaussian(multiplier): 1}, DELTA)


def round_of(strategy: Any, updates: list[np.ndarray], examples: list[int]) -> np.ndarray | None:
    """Returns the aggregate of a strategy in one round from a model of zeros."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

    size, nodes = len(updates[0]), list(range(1, len(updates) + 1))
    grid = SimpleNamespace(get_node_ids=lambda: nodes)
    messages = strategy.configure_train(1, ArrayRecord([np.zeros(size)]), ConfigRecord(), grid)
    requests = {message.metadata.dst_node_id: message for message in messages}
    replies = []
    for node, update, count in zip(nodes, updates, examples, strict=True):
        content = RecordDict(
            {"arrays": ArrayRecord([update]), "metrics": MetricRecord({"num-examples": count})}
        )
        replies += [Message(content, reply_to=requests[node])] if count else []
    aggregate, _ = strategy.aggregate_train(1, replies)
    return None if aggregate is None else aggregate.to_numpy_ndarrays()[0]


def canary(within: bool, size: int = SIZE) -> np.ndarray:
    """Returns a long update along one coordinate, or almost none."""
    update = np.zeros(size)
    update[0] = 100.0 if within else 1e-6
    return update


def fixed_clipping(
    examples: list[int], multiplier: float = 1.0, count_privacy: bool = False
) -> Callable[[bool, bool], np.ndarray]:
    """Returns releases of Flower's fixed clipping at the server."""
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

    def release(within: bool, quiet: bool) -> np.ndarray:
        noise = QUIET if quiet else multiplier
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_train=1.0, min_train_nodes=2, min_available_nodes=2),
            noise,
            1.0,
            len(examples),
            accountant=flower_accountant(len(examples)) if count_privacy else None,
        )
        rest = [np.full(SIZE, 1e-9) for _ in examples[1:]]
        aggregate = round_of(strategy, [canary(within), *rest], examples)
        if aggregate is None:
            raise ValueError("the strategy does not aggregate")
        return aggregate

    return release


def flower_accountant(clients: int) -> Any:
    """Returns Flower's accountant for some clients."""
    accounting = importlib.import_module("flwr.supercore.privacy_accounting")
    module = importlib.import_module("flwr.supercore.privacy_accounting.rdp_accountant")
    relation = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    config = accounting.PrivacyConfig(
        DELTA, clients, relation, accounting.SamplingMethod.NO_AMPLIFICATION
    )
    return module.RdpAccountant(config)


def flower_fixed() -> Iterator[Row]:
    """Yields the rows of fixed clipping at the server."""
    name, claim = "Flower", one_gaussian(1.0)
    ten = [100] * 10
    yield judge(
        name,
        "server-side fixed clipping, ten clients alike, multiplier 1",
        claim,
        by_spread(fixed_clipping(ten)),
    )
    uneven = [1000] + [10] * 9
    by_examples = "the same, one client with 1000 examples and nine with 10 (FedAvg weighs by them)"
    yield judge(name, by_examples, claim, by_spread(fixed_clipping(uneven)))
    half = [100] * 5 + [0] * 5
    yield judge(
        name,
        "the same, five of ten clients reply (it warns, and goes on)",
        claim,
        by_spread(fixed_clipping(half)),
    )
    for what, examples in (
        ("with its accountant: clients unlike", uneven),
        ("with its accountant: replies missing", half),
    ):
        try:
            fixed_clipping(examples, count_privacy=True)(True, False)
            yield Row(name, what, "refused", "not refused", "**refuted**")
        except ValueError as error:
            yield Row(
                name, what, "refused or skipped", f"refused: {str(error)[:60]}", "consistent: right"
            )


def flower_adaptive(clients: int = 40) -> Iterator[Row]:
    """Yields the rows of adaptive clipping at the server."""
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg

    def release(within: bool, quiet: bool) -> np.ndarray:
        np.random.seed(0)  # the level that follows is then that of both worlds
        strategy = DifferentialPrivacyServerSideAdaptiveClipping(
            FedAvg(fraction_train=1.0, min_train_nodes=2, min_available_nodes=2),
            QUIET if quiet else 1.0,
            clients,
            initial_clipping_norm=1.0,
            clipped_count_stddev=2.0,
        )
        rest = [100.0 * np.eye(1, SIZE, 1 + number)[0] for number in range(clients - 1)]
        aggregate = round_of(strategy, [canary(within), *rest], [1] * clients)
        assert aggregate is not None
        return aggregate[clients:] if not quiet else aggregate  # what is noise alone, or what moves

    what = f"server-side adaptive clipping, {clients} clients alike, all clipped, multiplier 1"
    yield judge("Flower", what, one_gaussian(1.0), by_spread(release))
    from flwr.supercore.differential_privacy import clip_inputs_inplace

    update = [np.array([math.nan, 1e6])]
    clip_inputs_inplace(update, 1.0)
    measurement = f"the second number is {update[0][1]:g}"
    yield Row(
        "Flower",
        "its clip, at level 1, of an update (nan, 1e6)",
        "norm at most 1",
        measurement,
        "**refuted**",
    )


def flower_local() -> Iterator[Row]:
    """Yields the rows of noise at the clients."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.clientapp.mod import LocalDpMod

    def mod(epsilon: float, sensitivity: float) -> Callable[[bool, bool], np.ndarray]:
        def release(within: bool, quiet: bool) -> np.ndarray:
            update = (1.0 if within else -1.0) * canary(True)
            message = Message(
                RecordDict({"arrays": ArrayRecord([np.zeros(SIZE)]), "config": ConfigRecord()}),
                1,
                "train",
            )

            def inner(request: Message, _: object, update: np.ndarray = update) -> Message:
                return Message(RecordDict({"arrays": ArrayRecord([update])}), reply_to=request)

            local_mod = LocalDpMod(1.0, sensitivity, epsilon * (1 / QUIET if quiet else 1), DELTA)
            return local_mod(message, None, inner).content["arrays"].to_numpy_ndarrays()[0]

        return release

    name = "Flower"
    yield judge(
        name,
        "LocalDpMod(clip 1, sensitivity 1, epsilon 1), two updates inside the clip",
        1.0,
        by_spread(mod(1.0, 1.0)),
    )
    yield judge(name, "LocalDpMod(clip 1, sensitivity 2, epsilon 1)", 1.0, by_spread(mod(1.0, 2.0)))
    yield judge(
        name, "LocalDpMod(clip 1, sensitivity 2, epsilon 10)", 10.0, by_spread(mod(10.0, 2.0))
    )


# Flower: SecAgg+


def secagg_members(clients: int, size: int) -> tuple[Any, dict[int, Any], np.ndarray]:
    """Runs a round of SecAgg+ up to the masked vectors, by the functions of its mod."""
    from flwr.app import ConfigRecord
    from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
    from flwr.common.secure_aggregation.secaggplus_constants import Key

    mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    states = {nid: mod.SecAggPlusState(nid=nid) for nid in range(1, clients + 1)}
    settings = {
        Key.SAMPLE_NUMBER: clients,
        Key.SHARE_NUMBER: clients,
        Key.THRESHOLD: 2,
        Key.CLIPPING_RANGE: 8.0,
    }
    settings |= {Key.TARGET_RANGE: 1 << 22, Key.MOD_RANGE: 1 << 32, Key.MAX_WEIGHT: 1.0}
    keys = {
        str(nid): list(mod._setup(state, ConfigRecord(settings)).values())
        for nid, state in states.items()
    }
    messages: dict[int, tuple[list[int], list[bytes]]] = {nid: ([], []) for nid in states}
    for nid, state in states.items():
        share_message = mod._share_keys(state, ConfigRecord(keys))
        for to, message in zip(
            share_message[Key.DESTINATION_LIST], share_message[Key.CIPHERTEXT_LIST], strict=True
        ):
            messages[to][0].append(nid)
            messages[to][1].append(message)
    secret = np.random.default_rng(0).uniform(-1, 1, size)
    masked_vectors = {}
    for nid, state in states.items():
        sources, texts = messages[nid]
        vector_request = ConfigRecord({Key.CIPHERTEXT_LIST: texts, Key.SOURCE_LIST: sources})
        vector_reply = mod._collect_masked_vectors(
            state,
            vector_request,
            1,
            ndarrays_to_parameters([secret if nid == 1 else np.zeros(size)]),
        )
        masked_vectors[nid] = [
            bytes_to_ndarray(array) for array in vector_reply[Key.MASKED_PARAMETERS]
        ][1]
    return mod, {nid: (state, masked_vectors[nid]) for nid, state in states.items()}, secret


def decode(numbers: np.ndarray) -> np.ndarray:
    """Decodes the whole numbers of SecAgg+ to the values of the client."""
    return (numbers % (1 << 32)).astype(float) * 16.0 / (1 << 22) - 8.0


def flower_masks() -> Iterator[Row]:
    """Yields the rows of SecAgg+."""
    from flwr.app import ConfigRecord
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

    size, claim = 50, "the server can inspect the aggregate only"
    mod, members, secret = secagg_members(3, size)
    both = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: [1, 2], Key.DEAD_NODE_ID_LIST: [1]})
    share_lists = [mod._unmask(members[nid][0], both)[Key.SHARE_LIST] for nid in (2, 3)]
    seed, key = (
        combine_shares([one[0] for one in share_lists]),
        combine_shares([one[2] for one in share_lists]),
    )
    shape = [(1,), (size,)]
    vector = members[1][1] - pseudo_rand_gen(seed, 1 << 32, shape)[1]
    public = members[1][0].public_keys_dict
    pairs = [
        generate_shared_key(bytes_to_private_key(key), bytes_to_public_key(public[nid][0]))
        for nid in (2, 3)
    ]
    for pair in pairs:  # the first member takes its masks with the others off
        vector = vector + pseudo_rand_gen(pair, 1 << 32, shape)[1]
    error = float(np.abs(decode(vector) - secret).max())
    what = "SecAgg+: a server lists one client as active and as dropped out"
    measurement = f"members reveal both shares; the server reads its update, error {error:.1g}"
    yield Row("Flower", what, claim, measurement, "**refuted** for a server that lies")
    seed_start = 0
    for start in range(0, len(pairs[0]), 4):
        seed_start ^= int.from_bytes(pairs[0][start : start + 4], "little")
    start_time, tries = time.process_time(), 1 << 14
    first = pseudo_rand_gen(pairs[0], 1 << 32, [(1,), (1,)])[1]
    start = seed_start - seed_start % tries
    guesses = (guess.to_bytes(4, "little") for guess in range(start, start + tries))
    right = [
        guess for guess in guesses if pseudo_rand_gen(guess, 1 << 32, [(1,), (1,)])[1] == first
    ]
    hours = (time.process_time() - start_time) / tries * 2**32 / 3600
    yield Row(
        "Flower", "SecAgg+: masks are made of 32 bits (issue 7522)", claim,
        f"the seed of a pair found among {tries:,} that hold it ({len(right)} left); all 2^32: "
            f"{hours:.0f} hours of one core",
        "**weak**: 32 bits",
    )  # fmt: skip


# Opacus in a client that makes a new engine every round, as Flower's example does


def opacus(
    rounds: int = 40, samples: int = 64, batch: int = 64, multiplier: float = 1.5, runs: int = 300
) -> Iterator[Row]:
    """Yields the rows of Opacus in a federated client."""
    from opacus import PrivacyEngine
    from opacus.accountants import PRVAccountant

    torch.set_num_threads(1)
    logging.getLogger("opacus").setLevel(logging.ERROR)
    x = torch.zeros(samples, 4)
    x[0, 0] = 1e3  # its gradient lies along one weight, at the clip
    y, printed_epsilons = torch.zeros(samples, 1), []

    def fit(within: bool) -> tuple[float, float]:
        """Trains for one round, and returns the movement of that weight in clip norms and the
        printed epsilon.
        """
        model = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.constant_(model.weight, 1.0)
        rows = slice(None) if within else slice(1, None)
        data = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x[rows], y[rows]), batch_size=batch
        )
        engine = PrivacyEngine(secure_mode=False)
        model, optimiser, loader = engine.make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-9), data_loader=data,
            noise_multiplier=multiplier, max_grad_norm=1.0,
        )  # fmt: skip
        distance = 0.0
        for some, labels in loader:
            optimiser.zero_grad()
            torch.nn.functional.mse_loss(model(some), labels, reduction="mean").backward()
            optimiser.step()
            distance += float(model._module.weight.grad[0, 0]) * batch
        return distance, engine.get_epsilon(DELTA) if len(printed_epsilons) < 1 else 0.0

    printed_epsilons.append(fit(True)[1])

    def mechanism(within: bool, times: int, rng: np.random.Generator) -> np.ndarray:
        torch.manual_seed(int(rng.integers(2**62)))
        return np.array([[sum(fit(within)[0] for _ in range(rounds))] for _ in range(times)])

    measured = distinguish(mechanism, DELTA, runs, 0.95, Keyed(0), name="opacus").epsilon
    total_accountant = PRVAccountant()
    total_accountant.history = [(multiplier, batch / samples, rounds * math.ceil(samples / batch))]
    what = f"DP-SGD in a client, {rounds} rounds, a new PrivacyEngine in each"
    yield judge(
        "Opacus",
        f"{what}: the epsilon that is printed, taken for the run",
        printed_epsilons[0],
        measured,
    )
    yield judge(
        "Opacus",
        f"{what}: its own accountant over all rounds",
        total_accountant.get_epsilon(DELTA),
        measured,
    )


# Others


def pfl() -> Iterator[Row]:
    """Yields the row of pfl."""
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy import GaussianMechanism
    from pfl.stats import MappedVectorStatistics

    set_framework_module(numpy_ops)

    def release(within: bool, quiet: bool) -> np.ndarray:
        mechanism = GaussianMechanism.construct_single_iteration(1.0, 2.0, DELTA)
        one, _ = mechanism.constrain_sensitivity(MappedVectorStatistics({"update": canary(within)}))
        if quiet:
            return np.asarray(one["update"]) * within
        return np.asarray(mechanism.add_noise(one, 10, seed=0)[0]["update"])

    yield judge("pfl", "GaussianMechanism for epsilon 2, clip 1", 2.0, by_spread(release))


def openfl() -> Iterator[Row]:
    """Yields the rows of OpenFL."""
    from openfl.component.collaborator.collaborator import Collaborator
    from openfl.utilities import TensorKey
    from openfl.utilities.secagg import pseudo_random_generator

    secret, other = (np.random.default_rng(seed).normal(size=1000) for seed in (0, 1))
    masks = SimpleNamespace(
        _private_mask=pseudo_random_generator(0.123),
        _shared_mask=pseudo_random_generator(b"agreed"),
    )

    def masked_update(update: np.ndarray, round: int) -> np.ndarray:
        tensors = {TensorKey("w", "one", round, False, ("trained",)): update}
        Collaborator._apply_masks(masks, tensors)
        return next(iter(tensors.values()))

    first, second = masked_update(secret, 0), masked_update(other, 1)
    flat = float(np.abs((first - first.mean()) - (secret - secret.mean())).max())
    apart = float(np.abs((second - first) - (other - secret)).max())
    claim = "secure aggregation (no document found)"
    one, same = (
        "secure aggregation: a mask is one number for a whole tensor",
        "the same: masks are made once a run",
    )
    yield Row(
        "OpenFL", one, claim, f"the update but for its mean, error {flat:.0e}", "**not hidden**"
    )
    yield Row(
        "OpenFL",
        same,
        claim,
        f"the change from round to round, error {apart:.0e}",
        "**not hidden**",
    )


def nvflare(size: int = 20) -> Iterator[Row]:
    """Yields the row of NVFlare."""
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    svt_filter = SVTPrivacy(
        fraction=1.0, epsilon=0.1, gamma=1.0, tau=0.1, epsilon_release=2.0, replace=False
    )
    svt_filter.log_info = svt_filter.log_debug = lambda *words: None  # type: ignore[method-assign]
    svt_filter.logger.setLevel(logging.ERROR)

    def mechanism(within: bool, times: int, rng: np.random.Generator) -> np.ndarray:
        np.random.seed(int(rng.integers(2**32)))
        outputs = []
        for _ in range(times):
            dxo = DXO(DataKind.WEIGHT_DIFF, {"w": np.full(size, 1.0 if within else -1.0)})
            outputs.append(svt_filter.process_dxo(dxo, Shareable(), FLContext()).data["w"])
        return np.stack(outputs)

    measured = distinguish(mechanism, 0.0, 3000, 0.95, Keyed(0), name="svt").epsilon
    what = f"SVTPrivacy, all of {size} numbers uploaded, 0.1 for the choice and 2 for the release"
    yield judge("NVFlare", what, 2.1, measured)


PEERS: dict[str, tuple[str, Callable[[], Iterable[Row]]]] = {
    "flower": ("flwr", flower),
    "opacus": ("opacus", opacus),
    "pfl": ("pfl", pfl),
    "openfl": ("openfl", openfl),
    "nvflare": ("nvflare", nvflare),
}


def main() -> None:
    """Plays the games on the chosen peers and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", choices=[[], *PEERS], help="only these")
    names = parser.parse_args().peers or list(PEERS)
    logging.disable(logging.WARNING)
    print("| package | mechanism | what is said | measured | verdict |\n|---|---|---|---|---|")
    for name in names:
        package, play = PEERS[name]
        try:
            version = importlib.metadata.version(package)
            np.random.seed(0)
            for row in play():
                print(replace(row, package=f"{row.package} {version}"), flush=True)
        except ImportError as error:
            print(Row(name, "", "", "", f"not installed ({error})"), flush=True)


if __name__ == "__main__":
    main()
