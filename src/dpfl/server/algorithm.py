"""An algorithm is a frozen composition of parts that know nothing of each other.

    local training x releases x steps x weights x server update [x schedule]

A *release* samples units, clips each unit's vector, sums, adds noise and divides by a fixed number
(`Release`). An algorithm has three: of the samples in a step, of a client's update, and of the
clients in a round. At most one of them has noise, and `placement` says which. From that follow the
unit that is protected, whose ledger pays, and whether the server is trusted.

DP-FedAvg (McMahan et al. 2018) reads like its pseudo-code:

    Algorithm(
        "dp-fedavg",
        LocalTraining(SGD(0.1)),                                # x_i <- x_i - eta grad
        FixedSteps(5),                                          # tau = 5
        clients=Release(Poisson(q), Flat(C), Gaussian(z)),   # sum_i clip(x_i - x) + N(0, (z C)^2 I)
    )

Nothing in the loop knows the name of a system. What cannot be together is refused in one place
(`server/rules.py`). The `with_...` and `for_...` methods return a changed copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.noise_placement import NoisePlacement
from dpfl.codec import part
from dpfl.deprecation import deprecated_names, keep_old_names, renamed_keywords
from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy import Release
from dpfl.privacy.mechanisms.noises.noise import Gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.units import SAMPLE_UNITS
from dpfl.server.composition import Composition
from dpfl.server.rules import PERSONS, SECURE_NOISE, SECURE_SUMS, check

_FIELDS = {
    NoisePlacement.EVERY_STEP: "samples",
    NoisePlacement.CLIENT_UPDATE: "updates",
    NoisePlacement.ROUND_SUM: "clients",
    NoisePlacement.NONE: "clients",
}


@keep_old_names(
    uploads="updates",
    kept="client_state",
    stated="stated_spending",
    one="sample_unit",
    scale="placement",
    own_accounts="ledger_per_client",
    protecting="for_unit",
    fitted="for_model",
    policy="disclosure_rules",
    before="query_spending",
    questions="queries",
    over="for_rounds",
    of_size="for_client_size",
    summed="with_secure_sums",
    sums="noise_shares",
    secured="with_secure_noise",
)
@part("algorithm")
@dataclass(frozen=True)
class Algorithm(Composition):
    """Local training x releases (in steps, on updates, on the sum of a round) x steps x weights x
    server update.

    `Composition` lists the parts. Parts that cannot be together are refused (`server/rules.py`).

    Raises:
        DpflError: There is no proof for this composition.
    """

    def __post_init__(self) -> None:
        check(self)

    def for_unit(self, unit: str) -> Algorithm:
        """Returns the algorithm for samples or for persons.

        A person's vector is a mean over rows and is clipped as a sample's is. What is proven for
        one holds for the other.

        Args:
            unit: "sample" (one row) or "person" (all rows of one at a client).

        Returns:
            The algorithm for that unit.

        Raises:
            DpflError: The unit is neither, nothing inside a client is protected, or the variant is
                what a paper published for samples.
        """
        if unit == self.sample_unit:
            return self
        if unit not in SAMPLE_UNITS:
            raise DpflError(
                "privacy.unit is 'sample' (one row) or 'person' (all rows of one at a client), "
                f"not {unit!r}."
            )
        check(self, rules=PERSONS)
        return replace(self, sample_unit=unit)

    @property
    def disclosure_rules(self) -> DisclosureRules:
        """What the owners of the data must agree to: a trusted server, updates without noise, raw
        values, or sums only.
        """
        return DisclosureRules(
            self.trusts_server,
            bare=not self.has_noise,
            raw=bool(self.leaks),
            sums=self.noise_shares is not None,
        )

    def for_client_size(self, samples: int) -> Algorithm:
        """Returns the algorithm as it is for one client. Noise on uploads may depend on its size.

        Args:
            samples: How many samples the client declared.

        Returns:
            The algorithm with the client's own noise and claim.
        """
        if self.updates is None or self.updates.by_samples is None:
            return self
        noise = self.updates.by_samples.for_size(samples)
        return replace(
            self,
            updates=self.updates.with_client_noise(noise),
            claim=replace(self.claim, formula=noise.claimed),
        )

    @renamed_keywords(shared="shares")
    def with_secure_sums(self, shares: NoiseShares) -> Algorithm:
        """Returns the algorithm with noise that clients share under secure aggregation.

        Args:
            shares: How many clients are in every sum, and how many of them may collude.

        Returns:
            The algorithm, whose server sees sums only.

        Raises:
            DpflError: There is no proof for this composition.
        """
        check(self, rules=SECURE_SUMS)
        assert self.release is not None
        # A release of clients may have shares without a proof, which these replace.
        of_clients = self.placement is NoisePlacement.ROUND_SUM
        shared_by = None if of_clients else self.release.shared_by
        return self.with_release(replace(self.release, noise_shares=shares, shared_by=shared_by))

    def with_release(self, release: Release) -> Algorithm:
        """Returns the algorithm with another release in the place of the one that has noise.

        Args:
            release: A release for the same place.

        Returns:
            The algorithm with that release.
        """
        return replace(self, **{_FIELDS[self.placement]: release})  # type: ignore[arg-type]

    def with_noise(self, multiplier: float) -> Algorithm:
        """Returns the algorithm with Gaussian noise, or noise of its own kind, of this size.

        Args:
            multiplier: The noise over the sensitivity of its release.

        Returns:
            The algorithm with that noise.
        """
        if self.placement is NoisePlacement.CLIENT_UPDATE:
            return replace(self, updates=replace(self.updates, noise=Gaussian(multiplier)))  # type: ignore[type-var]
        return self.with_release((self.release or self.clients).with_noise(multiplier))

    def with_secure_noise(self) -> Algorithm:
        """Returns the algorithm with noise that withstands attacks on floating-point arithmetic.

        Returns:
            The algorithm, in which queries have such noise, too.

        Raises:
            DpflError: Some of the noise has no such form.
        """
        check(self, rules=SECURE_NOISE)
        assert self.release is not None
        secure = replace(
            self,
            centre=self.centre and self.centre.with_secure_noise(),
            columns=self.columns and self.columns.with_secure_noise(),
            metric=self.metric and self.metric.with_secure_noise(),
            weights=self.weights.with_secure_noise(),
        )
        return secure.with_release(self.release.with_secure_noise())

    def for_model(self, layout: Layout) -> Algorithm:
        """Fits the algorithm to a model. Releases of Haar coefficients need to know where its
        parameters end, and not every model has a centre or scales to ask for.

        Args:
            layout: The layout of the model.

        Returns:
            The algorithm for that model.
        """
        ends = (*layout.offsets[1:], layout.size)
        trained_ends = [end for end in ends if end <= layout.trainable]
        return replace(
            self,
            samples=self.samples.for_model(trained_ends) if self.samples else None,
            clients=self.clients.for_model(ends),
            centre=self.centre if layout.centre else None,
            columns=self.columns if layout.paid_scales else None,
        )

    def for_rounds(self, rounds: int | None, population: int) -> Algorithm:
        """Fits the algorithm to a run. Schedules, and noise that later rounds take back, depend on
        its length.

        Args:
            rounds: The rounds of the run; None where the budget does not limit them.
            population: How many clients there are.

        Returns:
            The algorithm for that run.

        Raises:
            DpflError: The algorithm depends on the rounds, and they are not limited.
        """
        if self.schedule is None and not self.clients.whole_run:
            return self
        if rounds is None:
            raise DpflError(
                "A release that changes from round to round is planned for all rounds at once; "
                "give budget.rounds."
            )
        schedule = self.schedule.for_rounds(rounds) if self.schedule else None
        return replace(self, schedule=schedule, clients=self.clients.for_rounds(rounds, population))

    @property
    def queries(self) -> tuple[str, ...]:
        """What clients are asked beside their updates, in words."""
        queries = []
        if self.columns:
            queries.append(
                f"the scales of {len(self.columns.places) + len(self.columns.binned)} columns, "
                "before the first round"
            )
        if self.metric:
            queries.append(
                "how good the model is, after the last round: the metric is noisy, and its noise "
                "is counted here"
            )
        return tuple(queries)


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Claim": "dpfl.server.claim.Claim"})
