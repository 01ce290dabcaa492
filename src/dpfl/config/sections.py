"""The sections of an experiment file except `[data]`: their keys, types, bounds and defaults.

`docs/reference.md` explains every key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from dpfl import algorithms
from dpfl.errors import DpflError
from dpfl.privacy.accounting.budget import MAX_ROUNDS
from dpfl.run.options import Aggregation, Privacy

if TYPE_CHECKING:
    from dpfl.planning.paid_queries import PrivateMetric


class StrictSection(BaseModel):
    """A section that refuses keys that it does not list."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class OpenSection(BaseModel):
    """A section that passes keys that it does not list to the part that it names.

    The part knows its own options. So `[model]` with `name = "mlp"` and `hidden = 32` builds
    `mlp(hidden=32)`.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    def options(self) -> dict[str, Any]:
        """Returns the keys that this section does not list.

        Returns:
            The options of the part, by name.
        """
        return dict(self.model_extra or {})


class ModelSection(OpenSection):
    """`[model]`: a name of the catalogue or an import path, with the options of that model."""

    name: str = "cnn"


class AlgorithmSection(OpenSection):
    """`[algorithm]`: a system or an import path, with the options of that system."""

    name: str = algorithms.DEFAULT


class BudgetSection(StrictSection):
    """`[budget]`: the limits of a run."""

    epsilon: float | None = None
    delta: float = 1e-5
    rounds: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class PrivacySection(StrictSection):
    """`[privacy]`: whom the guarantee protects, how it is accounted for, and the kind of noise."""

    unit: str | None = None
    accountant: str | None = None
    ledger: str | None = None
    entropy: str = "keyed"
    noise: str | None = None
    arithmetic: str = "exact"
    aggregation: str = "plain"
    survivors: int | None = Field(default=None, ge=1, le=100)
    colluders: int | None = Field(default=None, ge=0, le=100)

    def options(self, entropy: str | None = None) -> Privacy:
        """Returns what is protected, for `dpfl.train`.

        Args:
            entropy: The entropy of a run over nodes; None takes that of the file.

        Returns:
            The unit, the accountant, the ledgers, and the kind of noise.
        """
        return Privacy(
            self.unit,
            self.accountant,
            self.ledger,
            entropy or self.entropy,
            self.noise,
            self.arithmetic,
        )

    def aggregation_options(self, masks: bool = False) -> Aggregation:
        """Returns how the server gets the sum of a round, for `dpfl.train`.

        Args:
            masks: Whether a simulation runs the masking protocol.

        Returns:
            The kind of aggregation, with the survivors and colluders of secure sums.
        """
        return Aggregation(self.aggregation, self.survivors, self.colluders, masks)


class EngineSection(StrictSection):
    """`[engine]`: where clients run, and how long a server waits for nodes."""

    name: str = "local"
    workers: int | None = Field(default=None, ge=1, le=1024)
    masks: bool = False
    deadline: float = Field(default=600.0, gt=0, le=1e6)
    joining: float = Field(default=120.0, gt=0, le=1e6)
    least_replies: int = Field(default=1, ge=1, le=1_000_000)


class ServerSection(StrictSection):
    """`[server]`: the folder of the server's keys, its address, and the public key of each node."""

    folder: str = "federation"
    address: str = "127.0.0.1:9092"
    nodes: dict[str, str] = Field(default_factory=dict)
    watch: int = Field(default=0, ge=0, lt=2**16)


class EvaluateSection(StrictSection):
    """`[evaluate]`: how often the model is evaluated on the public test set."""

    every: int | None = Field(default=None, ge=1, le=MAX_ROUNDS)


class MetricsSection(StrictSection):
    """`[metrics]`: a metric that clients measure and pay for, where there is no public test set."""

    private: bool = False
    noise: float | None = None
    share: float | None = None
    held_out: float | None = None
    most: float | None = None

    def part(self) -> PrivateMetric | None:
        """Returns the metric that the clients pay for.

        Returns:
            The metric, or None where none is asked for.

        Raises:
            DpflError: An option is given, but `private` is not set.
        """
        from dpfl.planning.paid_queries import PrivateMetric

        options = self.model_dump(exclude={"private"}, exclude_none=True)
        if options and not self.private:
            raise DpflError(
                f"metrics.{next(iter(options))} has no effect without a private metric: set "
                "metrics.private = true, or remove it."
            )
        return PrivateMetric(**options) if self.private else None
