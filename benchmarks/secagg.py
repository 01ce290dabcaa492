"""What a secure sum costs a client and the server, a round, beside the same sum without masks,
beside a client of Flower's SecAgg+ (where flwr is installed) and beside a private step: python -m
benchmarks.secagg [--clients 10 30 100] [--numbers 26010 159010 1000000]
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


def met(clients: int) -> tuple[SumGroup, dict[str, SumMember]]:
    keys = {f"client-{number:03d}": Ed25519PrivateKey.generate() for number in range(clients)}
    identities = {name: key.public_key().public_bytes_raw().hex() for name, key in keys.items()}
    of = SumGroup("benchmark", identities, threshold(clients, 0))
    members = {name: SumMember(of, name, key) for name, key in keys.items()}
    for member in members.values():
        member.receive_keys([other.advertisement for other in members.values()])
    return of, members


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Milliseconds of the processor, so that what else the machine does hardly counts."""
    start = time.process_time()
    made = work()
    return 1e3 * (time.process_time() - start), made


def whole_round(
    of: SumGroup, members: dict[str, SumMember], whole: IntegerSum, size: int, round: int, gone: int
) -> dict[str, float]:
    """One sum, `gone` of its members silent: what one client that stays computes, and what the
    server does.
    """
    at = SumId(next(iter(members.values())).session, round)
    rng, vector = np.random.default_rng(round), np.zeros(size, np.float32)
    spent = dict.fromkeys(("numbers", "client", "server"), 0.0)
    sum, staying = MaskedSum(of, at, size, whole.bits), list(members)[gone:]
    for name in staying:
        drawn, numbers = timed(lambda: whole.numbers(vector, rng))
        masked, sent = timed(lambda name=name, numbers=numbers: members[name].mask(at, numbers))
        spent["numbers"] += drawn / len(staying)
        spent["client"] += masked / len(staying)
        spent["server"] += timed(lambda sent=sent: sum.take(sent))[0]
    asked, shown = timed(sum.survivor_lists)
    spent["server"] += asked
    for name in staying:
        answered, answer = timed(lambda name=name: members[name].agree(shown[name]))
        spent["client"] += answered / len(staying)
        (sum.vote if gone else sum.open)(answer)
    for name in staying if gone else ():
        answered, answer = timed(lambda name=name: members[name].open(sum.votes()))
        spent["client"] += answered / len(staying)
        sum.open(answer)
    spent["server"] += timed(sum.total)[0]
    return spent


def plain_sum(clients: int, size: int) -> float:
    numbers = np.ones((clients, size), np.uint32)
    return min(timed(lambda: numbers.sum(axis=0, dtype=np.uint32))[0] for _ in range(REPEATS))


def flower(clients: int, size: int) -> float:
    try:
        from benchmarks.secagg_flower import one_client
    except ImportError:
        return float("nan")
    return min(one_client(clients, size) for _ in range(REPEATS if clients <= 30 else 1))


def private_step() -> float:
    """Of the cnn with 26,010 parameters, clip and noise, on a batch of 600 images."""
    model = FlatModel(dpfl.models.cnn().build((1, 28, 28), 10, seed=0), tasks.MultiClass(10))
    gradients, x, y = (
        ClippedGradients(model),
        torch.rand(BATCH, 1, 28, 28),
        torch.arange(BATCH) % 10,
    )
    return min(
        timed(lambda: gradients(x, y, lambda norms: 1 / norms.clamp_min(1.0)))[0] for _ in range(5)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 30, 100])
    parser.add_argument("--numbers", type=int, nargs="+", default=[26_010, 159_010, 1_000_000])
    given = parser.parse_args()
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
    for clients in given.clients:
        of, members = met(clients)
        rounds = iter(range(10**6))
        for size in given.numbers:
            whole = IntegerSum(1.0, 100.0, clients)
            all_there, some = (
                min(
                    (
                        whole_round(of, members, whole, size, next(rounds), gone)
                        for _ in range(REPEATS)
                    ),
                    key=lambda r: r["client"],
                )
                for gone in (0, clients // 10)
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
