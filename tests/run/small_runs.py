"""Systems whose run takes a second, and what their ledgers hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpfl
from dpfl.algorithms import Algorithm, dp_fedavg, fedavg_dp
from dpfl.privacy import Ledger
from dpfl.run.metrics import RoundRow
from tests.privacy.forging import debit_elsewhere

Train = Callable[..., dpfl.Result]


SOUND = fedavg_dp(tau=3, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5)


CROWDED = dp_fedavg(cohort=8, noise_multiplier=1.0, tau=2)


EVENT = SOUND.samples.event(0)


def spent(folder: Path, name: str = "client-00000") -> dict[Any, int]:
    ledger = Ledger.read(folder / f"{name}.sqlite")
    try:
        return ledger.spending()
    finally:
        ledger.close()


def counts(folder: Path) -> list[int]:
    return [sum(spent(folder, path.stem).values()) for path in sorted(folder.glob("*.sqlite"))]


def spend_elsewhere(path: Path, event: Any, count: int) -> None:
    """Another run's debit on a ledger in use."""
    debit_elsewhere(path, "another", "release", event, count)


def by_rdp(algorithm: Algorithm) -> dict[str, str]:
    """The quick accountant, where there is anything to account for."""
    return {} if algorithm.unit == "none" else {"accountant": "rdp"}


class Hook:
    """Watches a run, and does something after each of its rounds."""

    def __init__(self, act: Callable[[RoundRow], object]) -> None:
        self.tell = act

    def start(self, job: Any) -> None: ...

    def stop(self) -> None: ...
