"""Measures the cost of a secure sum for a client and for the server, beside the same sum without
masks, a client of Flower's SecAgg+ (if flwr is installed) and a private step.

    python -m benchmarks.secagg [--clients 10 30 100] [--numbers 26010 159010 1000000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import dpfl
from dpfl import tasks
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.secagg import MaskedSum, SumGroup, SumId, SumMember
from dpfl.secagg.group import threshold

REPEATS, BATCH = 3, 600


def make_group(clients: int) -> tuple[SumGroup, dict[str, SumMember]]:
    """Returns a group whose members have exchanged their keys."""
    keys = {f"client-{number:03d}": Ed25519PrivateKey.generate() for number in range(clients)}
    identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
    of = SumGroup("benchmark", identities, threshold(clients, 0))
    members = {name: SumMember(of, name, key) for name, key in keys.items()}
    for member in members.values():
        member.receive_keys([other.advertisement for other in members.values()])
    return of, members


def time_call(work: Callable[[], object]) -> tuple[float, object]:
    """Calls a function, and returns its milliseconds of the processor and its value."""
    start = time.process_time()
    value = work()
    return 1e3 * (time.process_time() - start), value


def whole_round(
    of: SumGroup,
    members: dict[str, SumMember],
    encoding: IntegerSum,
    size: int,
    round: int,
    missing: int,
) -> dict[str, float]:
    """Makes one sum with some members missing, and returns the milliseconds of a client and of the
    server.
    """
    sum_id = SumId(next(iter(members.values())).session, round)
    rng, vector = np.random.default_rng(round), np.zeros(size, np.float32)
    costs = dict.fromkeys(("numbers", "client", "server"), 0.0)
    sum, staying = MaskedSum(of, sum_id, size, encoding.bits), list(members)[missing:]
    for name in staying:
        duration, numbers = time_call(lambda: encoding.numbers(vector, rng))
        mask_time, message = time_call(
            lambda name=name, numbers=numbers: members[name].mask(sum_id, numbers)
        )
        costs["numbers"] += duration / len(staying)
        costs["client"] += mask_time / len(staying)
        costs["server"] += time_call(lambda message=message: sum.take(message))[0]
    list_time, survivor_lists = time_call(sum.survivor_lists)
    costs["server"] += list_time
    for name in staying:
        answer_time, answer = time_call(lambda name=name: members[name].agree(survivor_lists[name]))
        costs["client"] += answer_time / len(staying)
        (sum.vote if missing else sum.open)(answer)
    for name in staying if missing else ():
        answer_time, answer = time_call(lambda name=name: members[name].open(sum.votes()))
        costs["client"] += answer_time / len(staying)
        sum.open(answer)
    costs["server"] += time_call(sum.total)[0]
    return costs


def plain_sum(clients: int, size: int) -> float:
    """Returns the milliseconds of a sum without masks."""
    numbers = np.ones((clients, size), np.uint32)
    return min(time_call(lambda: numbers.sum(axis=0, dtype=np.uint32))[0] for _ in range(REPEATS))


def flower(clients: int, size: int) -> float:
    """Returns the milliseconds of a client of SecAgg+, or nan without flwr."""
    try:
        from benchmarks.secagg_flower import one_client
    except ImportError:
        return float("nan")
    return min(one_client(clients, size) for _ in range(REPEATS if clients <= 30 else 1))


def private_step() -> float:
    """Returns the milliseconds of a step of the cnn with 26,010 parameters on 600 images."""
    model = FlatModel(dpfl.models.cnn().build((1, 28, 28), 10, seed=0), tasks.MultiClass(10))
    gradients, x, y = (
        ClippedGradients(model),
        torch.rand(BATCH, 1, 28, 28),
        torch.arange(BATCH) % 10,
    )
    return min(
        time_call(lambda: gradients(x, y, lambda norms: 1 / norms.clamp_min(1.0)))[0]
        for _ in range(5)
    )


def main() -> None:
    """Measures sums and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--numbers", type=int, nargs="+", default=[26_010, 159_010, 1_000_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"a private step on {BATCH} images (cnn, 26,010 parameters): {private_step():.1f} ms")
    print(
        "milliseconds of the processor a round; a tenth of the clients is missing in the last two "
        "columns"
    )
    print(
        "| K | numbers | whole numbers with noise | masks, a client | SecAgg+ of Flower, a client "
        "| server | plain sum | "
        "client, missing | server, missing |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for clients in options.clients:
        of, members = make_group(clients)
        rounds = iter(range(10**6))
        for size in options.numbers:
            encoding = IntegerSum(1.0, 100.0, clients)
            all_there, some = (
                min(
                    (
                        whole_round(of, members, encoding, size, next(rounds), missing)
                        for _ in range(REPEATS)
                    ),
                    key=lambda r: r["client"],
                )
                for missing in (0, clients // 10)
            )
            cells = [
                all_there["numbers"],
                all_there["client"],
                flower(clients, size),
                all_there["server"],
            ]
            cells += [plain_sum(clients, size), some["client"], some["server"]]
            print(
                f"| {clients} | {size:,} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
