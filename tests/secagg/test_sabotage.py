"""Faults put into secure sums on purpose: each is caught by a check that the code passes without
it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from dpfl.privacy import Flat, Gaussian, Release
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.secagg import MemberRefusal, SumGroup, SumMember, UnmaskingShares, member
from dpfl.secagg import masks as masking
from dpfl.server.aggregation.round_sum import RoundSum, SimulatedMaskedSum
from tests.secagg.summing import at, begun, group, met, numbers

Check = Callable[[], bool]
OF = group(5, 4, 1)


def the_noise_is_what_is_stated() -> bool:
    """Ten clients, eight of whom survive, one of these the server's: the other seven have noise of
    deviation 1 at least.
    """
    release = Release(clip=Flat(1.0), noise=Gaussian(1.0), noise_shares=NoiseShares(8, 1))
    asked = RoundSum.of_updates(release, 10)
    whole, nothing = asked.integer_sum, np.zeros(20_000, np.float32)
    sent = {
        client: whole.numbers(nothing, np.random.default_rng([7, client])) for client in range(1, 8)
    }
    honest = whole.total(np.sum(list(sent.values()), axis=0, dtype=whole.kind))
    low, high = chi2.ppf([1e-6, 1 - 1e-6], len(honest))
    return bool(low < (honest**2).sum() / (1 + 7 * whole.unit**2 / 12) < high)


def masked_numbers_are_uniform() -> bool:
    """The bytes of many numbers, of one sum and of the difference of two; and every place of short
    ones, again and again.
    """
    members = met(OF)
    own = members[OF.names[0]]
    one, other = (
        own.mask(at(members, round), np.zeros(20_000, np.uint32)).numbers for round in (0, 1)
    )
    short = np.stack(
        [own.mask(at(members, 2, attempt), np.zeros(4, np.uint32)).numbers for attempt in range(40)]
    )
    spread = min(
        chisquare(np.bincount(some.view(np.uint8), minlength=256)).pvalue
        for some in (one, other, other - one)
    )
    return spread > 1e-5 and all(len(set(place)) > 30 for place in short.T.tolist())


def seeds_of_one_sum_open_no_other() -> bool:
    """What is opened of a round with a member missing is no seed of the next."""
    members, values, missing = met(OF), numbers(OF, 4), OF.names[4]
    first = begun(OF, members, values, at(members, 0), silent=[missing])
    for name, shown in first.survivor_lists().items():
        first.vote(members[name].agree(shown))
    opened = members[OF.names[0]].open(first.votes()).seeds[missing]
    members[OF.names[0]].mask(at(members, 1), values[OF.names[0]])
    under_way = members[OF.names[0]]._sum
    assert under_way is not None
    return opened not in under_way.seeds.values()


def too_few_are_refused_by_every_member() -> bool:
    members = met(OF)
    sum = begun(OF, members, numbers(OF, 4), at(members), silent=OF.names[:1])
    shown = sum.survivor_lists()
    few = {
        name: member.SurvivorList(one.sum_id, one.survivors[:3], one.envelopes)
        for name, one in shown.items()
    }
    try:
        return not any(
            isinstance(members[name].agree(few[name]), UnmaskingShares | member.SurvivorVote)
            for name in OF.names[1:4]
        )
    except MemberRefusal:
        return True


def a_missing_clients_noise_is_not_in_the_sum() -> bool:
    """The protocol's sum over nine of ten is the sum of the nine."""
    names = [f"client-{number}" for number in range(10)]
    add, rng = SimulatedMaskedSum("run", names, NoiseShares(8)), np.random.default_rng(0)
    sent = {client: rng.integers(0, 2**32, 5, dtype=np.uint32) for client in range(9)}
    return bool((add(0, sent) == np.sum(list(sent.values()), axis=0, dtype=np.uint32)).all())


CHECKS: tuple[Check, ...] = (
    the_noise_is_what_is_stated, masked_numbers_are_uniform, seeds_of_one_sum_open_no_other,
    too_few_are_refused_by_every_member, a_missing_clients_noise_is_not_in_the_sum,
)  # fmt: skip


def leave_a_share_out(patch: pytest.MonkeyPatch) -> None:
    honest, calls = IntegerSum.numbers, iter(range(10**6))

    def numbers(self: IntegerSum, vector: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(len(vector), self.kind) if next(calls) == 0 else honest(self, vector, rng)

    patch.setattr(IntegerSum, "numbers", numbers)


def count_colluders_as_honest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NoiseShares, "unknown_shares", property(lambda self: self.survivors))


def count_the_missing_as_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        RoundSum, "integer_sum", property(lambda self: IntegerSum(1 / np.sqrt(10), self.bound, 10))
    )


def reuse_the_masks_of_pairs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(member, "pair_seed", lambda agreed, at, one, other: agreed[:16])


def reuse_all_masks(patch: pytest.MonkeyPatch) -> None:
    reuse_the_masks_of_pairs(patch)
    patch.setattr(member.secrets, "token_bytes", lambda length: bytes(length))
    honest = masking.derive
    patch.setattr(masking, "derive", lambda secret, info, length: honest(secret, b"always", length))


def mask_by_a_seed_of_zeros(patch: pytest.MonkeyPatch) -> None:
    """A member's own mask, which the others' keys then lay bare."""
    patch.setattr(member.secrets, "token_bytes", lambda length: bytes(length))


def open_a_seed_by_one_share_fewer(patch: pytest.MonkeyPatch) -> None:
    honest = member.split
    patch.setattr(
        member, "split", lambda seed, threshold, members: honest(seed, threshold - 1, members)
    )


def leave_a_number_unmasked(patch: pytest.MonkeyPatch) -> None:
    honest = masking.mask

    def mask(*given: object) -> np.ndarray:
        made = honest(*given).copy()  # type: ignore[arg-type]
        made[0] = 0
        return made

    patch.setattr(masking, "mask", mask)
    patch.setattr(member, "mask", mask)


def open_below_the_least(patch: pytest.MonkeyPatch) -> None:
    honest = SumMember.agree

    def agree(self: SumMember, shown: member.SurvivorList) -> UnmaskingShares | member.SurvivorVote:
        self._group = SumGroup(self._group.run, self._group.identities, 3, 0)
        return honest(self, shown)

    patch.setattr(SumMember, "agree", agree)


def leave_the_masks_of_the_missing(patch: pytest.MonkeyPatch) -> None:
    from dpfl.secagg import sum

    patch.setattr(sum, "add_pair", lambda *given, **more: None)


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_fault_every_check_passes(check: Check):
    assert check()


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (leave_a_share_out, the_noise_is_what_is_stated),
        (count_colluders_as_honest, the_noise_is_what_is_stated),
        (count_the_missing_as_there, the_noise_is_what_is_stated),
        (reuse_the_masks_of_pairs, seeds_of_one_sum_open_no_other),
        (reuse_all_masks, masked_numbers_are_uniform),
        (leave_a_number_unmasked, masked_numbers_are_uniform),
        (open_below_the_least, too_few_are_refused_by_every_member),
        (leave_the_masks_of_the_missing, a_missing_clients_noise_is_not_in_the_sum),
    ],
)
def test_every_fault_is_caught(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], check: Check
):
    fault(monkeypatch)
    assert not check()
