"""The option groups of `dpfl.train`: what is protected, how updates are summed, what is measured,
and how the run executes.

Each group is a frozen dataclass that checks its own values, so a wrong word is refused where it is
written. Importing this module is quick: it needs neither torch nor dp-accounting.

    dpfl.train(
        "cnn", federation, "fedavg-dp", dpfl.Budget(epsilon=4.0, rounds=80),
        privacy=dpfl.Privacy(unit="person", accountant="rdp"),
        execution=dpfl.Execution(seed=1, out="runs/first"),
    )
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError

if TYPE_CHECKING:
    from pathlib import Path

    from dpfl.planning.paid_queries import PrivateMetric
    from dpfl.run.callbacks import Callback
    from dpfl.run.over_nodes.node_pool import NodePool
    from dpfl.run.recorder import Progress

ENTROPIES = ("keyed", "system")
NOISE_KINDS = ("plain", "secure")
ARITHMETIC = ("exact", "fast")


@dataclass(frozen=True)
class Privacy:
    """The options of privacy: what is protected, and how noise is drawn and accounted for.

    Attributes:
        unit: "sample" (one row) or "person" (all rows of one person at a client). None takes the
            unit of the algorithm.
        accountant: "pld", "rdp" or "rdp-classic". None takes the tightest one that the algorithm
            allows.
        ledger: A folder of ledgers that several runs share. None keeps them in the run's folder.
        entropy: "keyed" draws noise from the seed, so a run repeats bit for bit. "system" draws it
            from the operating system, as real data need.
        noise: "plain" (float32) or "secure" (on a grid, which floating-point attacks cannot read).
            None is "secure" with system entropy and "plain" otherwise.
        arithmetic: "exact", or "fast" for simulations: the bound of a clip then holds up to the
            rounding of float32.
    """

    unit: str | None = None
    accountant: str | None = None
    ledger: Path | str | None = None
    entropy: str = "keyed"
    noise: str | None = None
    arithmetic: str = "exact"

    def __post_init__(self) -> None:
        if self.entropy not in ENTROPIES:
            raise DpflError(
                "privacy.entropy is 'keyed' (repeatable) or 'system' (for real data), not "
                f"{self.entropy!r}."
            )
        if self.noise is not None and self.noise not in NOISE_KINDS:
            raise DpflError(
                "privacy.noise is 'plain' (float32) or 'secure' (on a grid, for real data), not "
                f"{self.noise!r}."
            )
        if self.noise == "secure" and self.entropy != "system":
            raise DpflError(
                "Noise from a seed is not secure; with privacy.noise = 'secure' set "
                "privacy.entropy = 'system'."
            )
        if self.arithmetic not in ARITHMETIC:
            raise DpflError(
                "privacy.arithmetic is 'exact' or 'fast' (for simulations alone), not "
                f"{self.arithmetic!r}."
            )
        if self.arithmetic == "fast" and self.entropy == "system":
            raise DpflError(FAST_IS_FOR_SIMULATIONS)

    def noise_for(self, unit: str) -> str:
        """Returns the kind of noise of a run.

        Args:
            unit: What the algorithm protects; "none" adds no noise at all.

        Returns:
            "plain" or "secure".
        """
        from dpfl.privacy.units import protects_nobody  # its package is slow to import

        if self.noise is not None:
            return self.noise
        return "plain" if self.entropy == "keyed" or protects_nobody(unit) else "secure"


FAST_IS_FOR_SIMULATIONS = (
    "Fast arithmetic is for simulations: with real nodes, or privacy.entropy = 'system', leave "
    "privacy.arithmetic out."
)


@dataclass(frozen=True)
class Aggregation:
    """The options of aggregation: the server gets updates, or their sum only.

    Attributes:
        kind: "plain", or "secure": the server sees sums and no single update.
        survivors: How many clients must be in every secure sum. None is all of them.
        colluders: How many clients may be the server's own. None is 0.
        masks: Whether a simulation runs the masking protocol. The sum is the same without it. Real
            nodes always run it.
    """

    kind: str = "plain"
    survivors: int | None = None
    colluders: int | None = None
    masks: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("plain", "secure"):
            raise DpflError(
                "privacy.aggregation is 'plain' or 'secure' (the server sees sums only), not "
                f"{self.kind!r}."
            )
        for_sums = self.survivors is not None or self.colluders is not None or self.masks
        if self.kind == "plain" and for_sums:
            raise DpflError(
                "privacy.survivors, privacy.colluders and engine.masks are for secure sums: set "
                "privacy.aggregation = 'secure'."
            )


@dataclass(frozen=True)
class Evaluation:
    """The options of evaluation: what is measured of the model.

    Attributes:
        every: Rounds from one evaluation on the public test set to the next. None evaluates some
            25 times per run.
        metric: A noisy metric that the clients are asked for at the end, where no test set is
            public.
    """

    every: int | None = None
    metric: PrivateMetric | None = None

    def __post_init__(self) -> None:
        if self.every is not None and (isinstance(self.every, bool) or self.every < 1):
            raise DpflError(
                f"evaluate.every must be at least 1 round, not {self.every!r}; leave it out for "
                "about 25 evaluations per run."
            )

    def interval(self, rounds: int | None) -> int:
        """Chooses the number of rounds from one evaluation to the next.

        Args:
            rounds: How many rounds the budget allows; None where something else ends the run.

        Returns:
            `every`, or a 25th of the rounds. It is at least 1.
        """
        return self.every or max(1, (rounds or 25) // 25)


@dataclass(frozen=True)
class Execution:
    """The options of execution: where and how a run executes. None of them changes what is proven.

    Attributes:
        seed: The seed of the first weights, of sampling and of keyed noise.
        workers: Processes that clients train in. Their number does not change the model.
        out: The run's folder. None makes a new one under runs/.
        resume: Whether to go on with the run in `out`.
        progress: Who shows the rounds, such as the terminal.
        callbacks: Objects that are told of every round, such as `dpfl.loggers.MLflow`.
        nodes: The pool of nodes on other machines. None simulates the clients here.
        experiment: The content of an experiment file, for the record of the run.
    """

    seed: int = 0
    workers: int = 1
    out: Path | str | None = None
    resume: bool = False
    progress: Progress | None = None
    callbacks: Sequence[Callback] = ()
    nodes: NodePool | None = None
    experiment: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        if not whole or not 0 <= self.seed < 2**63:
            raise DpflError(f"A seed is a whole number from 0 to 2^63 - 1, not {self.seed!r}.")
        if self.resume and self.out is None:
            raise DpflError("To resume a run, name its folder.")
