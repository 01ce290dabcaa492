"""Games of `dpfl.audit` on what others ship, as they document it. `make peers` runs it and prints
the table of docs/peers.md.

Every case states what a document says, plays on the shipped code, and says no more than was played.
Noise that the code draws as independent Gaussian numbers is measured by its spread: how far one
client moves the result is found with next to no noise, and the deviation, from above, from 20,000
numbers (confidence 99.9 %). Whatever else is played guesses by a threshold that was fixed on other
draws (Clopper-Pearson, 95 %). delta is 1e-5.
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
    """A mechanism, what is said of it (with a figure, where there is one), what was measured, and
    what that means.
    """

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


def judged(package: str, mechanism: str, claimed: float, measured: float) -> Row:
    """A lower bound against what is said."""
    verdict = "**refuted**" if measured > claimed else "consistent"
    return Row(package, mechanism, f"epsilon {claimed:.3f}", f"epsilon >= {measured:.3f}", verdict)


def by_spread(release: Callable[[bool, bool], np.ndarray]) -> float:
    """Epsilon, at least, of a Gaussian mechanism: (with the canary, quietly) to what is
    released.
    """
    moved = float(np.linalg.norm(release(True, True) - release(False, True)))
    return epsilon_of(moved / deviation_at_most(release(False, False), CERTAIN), DELTA)


# Flower: strategies and mods


def flower() -> Iterator[Row]:
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.task_id = identity.node_id = 1  # messages are made inside a run
    yield from flower_fixed()
    yield from flower_adaptive()
    yield from flower_local()
    yield from flower_masks()


def one_gaussian(multiplier: float) -> float:
    return accountant("pld").epsilon({gaussian(multiplier): 1}, DELTA)


def round_of(strategy: Any, updates: list[np.ndarray], examples: list[int]) -> np.ndarray | None:
    """One round of a strategy from a model of zeros: what it makes of these clients' models."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

    size, nodes = len(updates[0]), list(range(1, len(updates) + 1))
    grid = SimpleNamespace(get_node_ids=lambda: nodes)
    messages = strategy.configure_train(1, ArrayRecord([np.zeros(size)]), ConfigRecord(), grid)
    asked = {message.metadata.dst_node_id: message for message in messages}
    replies = []
    for node, update, count in zip(nodes, updates, examples, strict=True):
        content = RecordDict(
            {"arrays": ArrayRecord([update]), "metrics": MetricRecord({"num-examples": count})}
        )
        replies += [Message(content, reply_to=asked[node])] if count else []
    found, _ = strategy.aggregate_train(1, replies)
    return None if found is None else found.to_numpy_ndarrays()[0]


def canary(within: bool, size: int = SIZE) -> np.ndarray:
    """A long update along one number, or next to none."""
    update = np.zeros(size)
    update[0] = 100.0 if within else 1e-6
    return update


def fixed(
    examples: list[int], multiplier: float = 1.0, spent: bool = False
) -> Callable[[bool, bool], np.ndarray]:
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

    def release(within: bool, quiet: bool) -> np.ndarray:
        noise = QUIET if quiet else multiplier
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_train=1.0, min_train_nodes=2, min_available_nodes=2),
            noise,
            1.0,
            len(examples),
            accountant=flower_accountant(len(examples)) if spent else None,
        )
        rest = [np.full(SIZE, 1e-9) for _ in examples[1:]]
        found = round_of(strategy, [canary(within), *rest], examples)
        if found is None:
            raise ValueError("the strategy does not aggregate")
        return found

    return release


def flower_accountant(clients: int) -> Any:
    accounting = importlib.import_module("flwr.supercore.privacy_accounting")
    module = importlib.import_module("flwr.supercore.privacy_accounting.rdp_accountant")
    relation = accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    config = accounting.PrivacyConfig(
        DELTA, clients, relation, accounting.SamplingMethod.NO_AMPLIFICATION
    )
    return module.RdpAccountant(config)


def flower_fixed() -> Iterator[Row]:
    name, said = "Flower", one_gaussian(1.0)
    ten = [100] * 10
    yield judged(
        name,
        "server-side fixed clipping, ten clients alike, multiplier 1",
        said,
        by_spread(fixed(ten)),
    )
    uneven = [1000] + [10] * 9
    weighed = "the same, one client with 1000 examples and nine with 10 (FedAvg weighs by them)"
    yield judged(name, weighed, said, by_spread(fixed(uneven)))
    half = [100] * 5 + [0] * 5
    yield judged(
        name,
        "the same, five of ten clients reply (it warns, and goes on)",
        said,
        by_spread(fixed(half)),
    )
    for what, examples in (
        ("with its accountant: clients unlike", uneven),
        ("with its accountant: replies missing", half),
    ):
        try:
            fixed(examples, spent=True)(True, False)
            yield Row(name, what, "refused", "not refused", "**refuted**")
        except ValueError as error:
            yield Row(
                name, what, "refused or skipped", f"refused: {str(error)[:60]}", "consistent: right"
            )


def flower_adaptive(clients: int = 40) -> Iterator[Row]:
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
        found = round_of(strategy, [canary(within), *rest], [1] * clients)
        assert found is not None
        return found[clients:] if not quiet else found  # what is noise alone, or what moves

    what = f"server-side adaptive clipping, {clients} clients alike, all clipped, multiplier 1"
    yield judged("Flower", what, one_gaussian(1.0), by_spread(release))
    from flwr.supercore.differential_privacy import clip_inputs_inplace

    update = [np.array([math.nan, 1e6])]
    clip_inputs_inplace(update, 1.0)
    found = f"the second number is {update[0][1]:g}"
    yield Row(
        "Flower",
        "its clip, at level 1, of an update (nan, 1e6)",
        "norm at most 1",
        found,
        "**refuted**",
    )


def flower_local() -> Iterator[Row]:
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

            def inner(asked: Message, _: object, update: np.ndarray = update) -> Message:
                return Message(RecordDict({"arrays": ArrayRecord([update])}), reply_to=asked)

            made = LocalDpMod(1.0, sensitivity, epsilon * (1 / QUIET if quiet else 1), DELTA)
            return made(message, None, inner).content["arrays"].to_numpy_ndarrays()[0]

        return release

    name = "Flower"
    yield judged(
        name,
        "LocalDpMod(clip 1, sensitivity 1, epsilon 1), two updates inside the clip",
        1.0,
        by_spread(mod(1.0, 1.0)),
    )
    yield judged(
        name, "LocalDpMod(clip 1, sensitivity 2, epsilon 1)", 1.0, by_spread(mod(1.0, 2.0))
    )
    yield judged(
        name, "LocalDpMod(clip 1, sensitivity 2, epsilon 10)", 10.0, by_spread(mod(10.0, 2.0))
    )


# Flower: SecAgg+


def secagg_members(clients: int, size: int) -> tuple[Any, dict[int, Any], np.ndarray]:
    """A round of SecAgg+ up to the masked vectors, by the functions of its mod."""
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
    letters: dict[int, tuple[list[int], list[bytes]]] = {nid: ([], []) for nid in states}
    for nid, state in states.items():
        shared = mod._share_keys(state, ConfigRecord(keys))
        for to, letter in zip(
            shared[Key.DESTINATION_LIST], shared[Key.CIPHERTEXT_LIST], strict=True
        ):
            letters[to][0].append(nid)
            letters[to][1].append(letter)
    secret = np.random.default_rng(0).uniform(-1, 1, size)
    masked = {}
    for nid, state in states.items():
        sources, texts = letters[nid]
        asked = ConfigRecord({Key.CIPHERTEXT_LIST: texts, Key.SOURCE_LIST: sources})
        sent = mod._collect_masked_vectors(
            state, asked, 1, ndarrays_to_parameters([secret if nid == 1 else np.zeros(size)])
        )
        masked[nid] = [bytes_to_ndarray(array) for array in sent[Key.MASKED_PARAMETERS]][1]
    return mod, {nid: (state, masked[nid]) for nid, state in states.items()}, secret


def shown(numbers: np.ndarray) -> np.ndarray:
    """Back from the whole numbers of SecAgg+ to what the client had."""
    return (numbers % (1 << 32)).astype(float) * 16.0 / (1 << 22) - 8.0


def flower_masks() -> Iterator[Row]:
    from flwr.app import ConfigRecord
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

    size, claim = 50, "the server can inspect the aggregate only"
    mod, members, secret = secagg_members(3, size)
    both = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: [1, 2], Key.DEAD_NODE_ID_LIST: [1]})
    told = [mod._unmask(members[nid][0], both)[Key.SHARE_LIST] for nid in (2, 3)]
    seed, key = combine_shares([one[0] for one in told]), combine_shares([one[2] for one in told])
    shape = [(1,), (size,)]
    found = members[1][1] - pseudo_rand_gen(seed, 1 << 32, shape)[1]
    public = members[1][0].public_keys_dict
    pairs = [
        generate_shared_key(bytes_to_private_key(key), bytes_to_public_key(public[nid][0]))
        for nid in (2, 3)
    ]
    for pair in pairs:  # the first member takes its masks with the others off
        found = found + pseudo_rand_gen(pair, 1 << 32, shape)[1]
    error = float(np.abs(shown(found) - secret).max())
    what = "SecAgg+: a server lists one client as active and as dropped out"
    told_both = f"members reveal both shares; the server reads its update, error {error:.1g}"
    yield Row("Flower", what, claim, told_both, "**refuted** for a server that lies")
    folded = 0
    for start in range(0, len(pairs[0]), 4):
        folded ^= int.from_bytes(pairs[0][start : start + 4], "little")
    begun, tries = time.process_time(), 1 << 14
    first = pseudo_rand_gen(pairs[0], 1 << 32, [(1,), (1,)])[1]
    start = folded - folded % tries
    guesses = (guess.to_bytes(4, "little") for guess in range(start, start + tries))
    right = [
        guess for guess in guesses if pseudo_rand_gen(guess, 1 << 32, [(1,), (1,)])[1] == first
    ]
    hours = (time.process_time() - begun) / tries * 2**32 / 3600
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
    from opacus import PrivacyEngine
    from opacus.accountants import PRVAccountant

    torch.set_num_threads(1)
    logging.getLogger("opacus").setLevel(logging.ERROR)
    x = torch.zeros(samples, 4)
    x[0, 0] = 1e3  # its gradient lies along one weight, at the clip
    y, printed = torch.zeros(samples, 1), []

    def fit(within: bool) -> tuple[float, float]:
        """One round from the same model: how far that weight moved, in clips, and the epsilon that
        is printed.
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
        moved = 0.0
        for some, labels in loader:
            optimiser.zero_grad()
            torch.nn.functional.mse_loss(model(some), labels, reduction="mean").backward()
            optimiser.step()
            moved += float(model._module.weight.grad[0, 0]) * batch
        return moved, engine.get_epsilon(DELTA) if len(printed) < 1 else 0.0

    printed.append(fit(True)[1])

    def mechanism(within: bool, times: int, rng: np.random.Generator) -> np.ndarray:
        torch.manual_seed(int(rng.integers(2**62)))
        return np.array([[sum(fit(within)[0] for _ in range(rounds))] for _ in range(times)])

    measured = distinguish(mechanism, DELTA, runs, 0.95, Keyed(0), name="opacus").epsilon
    kept = PRVAccountant()
    kept.history = [(multiplier, batch / samples, rounds * math.ceil(samples / batch))]
    what = f"DP-SGD in a client, {rounds} rounds, a new PrivacyEngine in each"
    yield judged(
        "Opacus", f"{what}: the epsilon that is printed, taken for the run", printed[0], measured
    )
    yield judged(
        "Opacus", f"{what}: its own accountant over all rounds", kept.get_epsilon(DELTA), measured
    )


# Others


def pfl() -> Iterator[Row]:
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy import GaussianMechanism
    from pfl.stats import MappedVectorStatistics

    set_framework_module(numpy_ops)

    def release(within: bool, quiet: bool) -> np.ndarray:
        made = GaussianMechanism.construct_single_iteration(1.0, 2.0, DELTA)
        one, _ = made.constrain_sensitivity(MappedVectorStatistics({"update": canary(within)}))
        if quiet:
            return np.asarray(one["update"]) * within
        return np.asarray(made.add_noise(one, 10, seed=0)[0]["update"])

    yield judged("pfl", "GaussianMechanism for epsilon 2, clip 1", 2.0, by_spread(release))


def openfl() -> Iterator[Row]:
    from openfl.component.collaborator.collaborator import Collaborator
    from openfl.utilities import TensorKey
    from openfl.utilities.secagg import pseudo_random_generator

    secret, other = (np.random.default_rng(seed).normal(size=1000) for seed in (0, 1))
    masks = SimpleNamespace(
        _private_mask=pseudo_random_generator(0.123),
        _shared_mask=pseudo_random_generator(b"agreed"),
    )

    def sent(update: np.ndarray, round: int) -> np.ndarray:
        tensors = {TensorKey("w", "one", round, False, ("trained",)): update}
        Collaborator._apply_masks(masks, tensors)
        return next(iter(tensors.values()))

    first, second = sent(secret, 0), sent(other, 1)
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
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.shareable import Shareable
    from nvflare.app_common.filters.svt_privacy import SVTPrivacy

    made = SVTPrivacy(
        fraction=1.0, epsilon=0.1, gamma=1.0, tau=0.1, epsilon_release=2.0, replace=False
    )
    made.log_info = made.log_debug = lambda *words: None  # type: ignore[method-assign]
    made.logger.setLevel(logging.ERROR)

    def mechanism(within: bool, times: int, rng: np.random.Generator) -> np.ndarray:
        np.random.seed(int(rng.integers(2**32)))
        found = []
        for _ in range(times):
            dxo = DXO(DataKind.WEIGHT_DIFF, {"w": np.full(size, 1.0 if within else -1.0)})
            found.append(made.process_dxo(dxo, Shareable(), FLContext()).data["w"])
        return np.stack(found)

    measured = distinguish(mechanism, 0.0, 3000, 0.95, Keyed(0), name="svt").epsilon
    what = f"SVTPrivacy, all of {size} numbers uploaded, 0.1 for the choice and 2 for the release"
    yield judged("NVFlare", what, 2.1, measured)


PEERS: dict[str, tuple[str, Callable[[], Iterable[Row]]]] = {
    "flower": ("flwr", flower),
    "opacus": ("opacus", opacus),
    "pfl": ("pfl", pfl),
    "openfl": ("openfl", openfl),
    "nvflare": ("nvflare", nvflare),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", choices=[[], *PEERS], help="only these")
    chosen = parser.parse_args().peers or list(PEERS)
    logging.disable(logging.WARNING)
    print("| package | mechanism | what is said | measured | verdict |\n|---|---|---|---|---|")
    for name in chosen:
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
