"""The rules for what an owner discloses beyond what its ledger pays for; nothing by default.

An owner cannot trust the server's rules (`server/rules.py`), so these tables judge every task by
itself, in a simulation and at a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpfl.client.noise_placement import NoisePlacement
from dpfl.client.task import ClientTask, exceeds_update_noise
from dpfl.refusals import RefusalReason


@dataclass(frozen=True)
class DisclosureRules:
    """The rules for what an owner discloses beyond what its ledger pays for; nothing by default.

    Attributes:
        trusted: Clipped updates and exact answers, to a server that shows sums with noise only.
        bare: Updates without any noise.
        raw: Values without noise beside an update, or releases that no accountant covers.
        sums: Values with a share of the noise only, inside secure sums that hide each client.
    """

    trusted: bool = False
    bare: bool = False
    raw: bool = False
    sums: bool = False

    def refusal(
        self, task: ClientTask, has_unbounded_release: Callable[[], bool] = lambda: True
    ) -> str:
        """Says in a sentence why the owner refuses a task.

        Args:
            task: What the server asks.
            has_unbounded_release: Says whether the owner's ledger holds a release without a
                guarantee. A task for raw values alone pays nothing, so it needs one.

        Returns:
            The sentence; empty where the owner does the task.
        """
        if task.only_raw_values and not has_unbounded_release():
            return "Its ledger holds no release without a guarantee, which raw values are."
        return next((f"Its owner refuses {what}." for what, _ in self._objections(task)), "")

    def reason(self, task: ClientTask) -> RefusalReason | None:
        """Says in one word why the owner refuses a task.

        Args:
            task: What the server asks.

        Returns:
            The reason; None where the owner does the task.
        """
        return next((reason for _, reason in self._objections(task)), None)

    def _objections(self, task: ClientTask) -> Iterator[tuple[str, RefusalReason]]:
        rules = QUERY_OBJECTIONS if task.query else TASKS
        return ((what, reason) for objects, what, reason in rules if objects(self, task))


def _unbounded(task: ClientTask) -> bool:
    update = task.update
    has_noise = any(
        placed_release.placement is NoisePlacement.CLIENT_UPDATE
        for placed_release in task.noisy_releases
    )
    return bool(
        update and has_noise and exceeds_update_noise(update, task.local, task.samples, task.steps)
    )


def _slope_is_bounded(task: ClientTask) -> bool:
    """Says whether the noise of the steps covers a slope. A slope is a norm of sums of clipped
    gradients, so it is covered where the clip bounds norms.
    """
    release = task.placed_release.release_at(NoisePlacement.EVERY_STEP)
    return bool(release and not task.update and release.clip.bounds_vector)


def _divides_by_drawn(task: ClientTask) -> bool:
    release = task.placed_release.release_at(NoisePlacement.EVERY_STEP)
    return release is not None and release.divide_by_drawn


ONLY_A_SHARE = "a share of the noise alone, where no secure sum hides it"
Objection = tuple[Callable[[DisclosureRules, ClientTask], object], str, RefusalReason]

QUERY_OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda own, task: task.steps > 0,
        "a question that comes with steps",
        RefusalReason.BAD_WORDS,
    ),
    (
        lambda own, task: task.query and task.query.trusted and not own.trusted,
        "a question of a server that it does not trust",
        RefusalReason.NOT_TRUSTED,
    ),
    (
        lambda own, task: (
            task.query and task.query.exact and not task.query.trusted and not own.raw
        ),
        "a question whose answer has no noise",
        RefusalReason.RAW_VALUES,
    ),
    (lambda own, task: task.noise_shares and not own.sums, ONLY_A_SHARE, RefusalReason.NOT_TRUSTED),
    (
        lambda own, task: (
            task.secure_sum and not (task.noise_shares and task.query and task.query.summable)
        ),
        "a secure sum of answers that are no mean, or that nobody shares the noise of",
        RefusalReason.UNCOVERED,
    ),
)

TASKS: tuple[Objection, ...] = (
    (
        lambda own, task: task.steps < 1 and not task.only_raw_values,
        "a task of less than one step",
        RefusalReason.BAD_WORDS,
    ),
    (
        lambda own, task: task.raw and not own.raw,
        "a task that asks for raw values",
        RefusalReason.RAW_VALUES,
    ),
    (
        lambda own, task: _divides_by_drawn(task) and not own.raw,
        "a task that divides by the batch that was drawn",
        RefusalReason.RAW_VALUES,
    ),
    (
        lambda own, task: task.placed_release.trusts_server and not own.trusted,
        "a task that leaves the noise to a server that it does not trust",
        RefusalReason.NOT_TRUSTED,
    ),
    (
        lambda own, task: not task.placed_release.has_noise and not own.bare,
        "a task without noise",
        RefusalReason.WITHOUT_NOISE,
    ),
    (
        lambda own, task: task.slope and not _slope_is_bounded(task),
        "a slope that the noise of the steps does not cover",
        RefusalReason.UNCOVERED,
    ),
    (
        lambda own, task: (
            task.own_release and task.samples and task.samples.sampling.depends_on_population
        ),
        "batches that are drawn by how many samples it has",
        RefusalReason.UNCOVERED,
    ),
    (
        lambda own, task: task.summed_release and not own.sums,
        ONLY_A_SHARE,
        RefusalReason.NOT_TRUSTED,
    ),
    (
        lambda own, task: (
            task.summed_release
            and (
                not task.secure_sum
                or task.raw
                or task.slope
                or task.update
                or (task.placement is NoisePlacement.EVERY_STEP and task.steps != 1)
            )
        ),
        "a secure sum of anything but one step on samples, or of one clipped update",
        RefusalReason.UNCOVERED,
    ),
    (
        lambda own, task: _unbounded(task),
        "an update whose noise covers less than one sample can change",
        RefusalReason.UNCOVERED,
    ),
    (
        lambda own, task: len(task.noisy_releases) > 1,
        "a task with noise in more than one place, of which only one would be paid for",
        RefusalReason.BAD_WORDS,
    ),
)
