"""Epsilon that was fixed before the first release, and what was used of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dpfl
from dpfl.algorithms import ali_dpfl, als_dpfl, fedavg_dp
from dpfl.certificate import certify, new_key
from dpfl.cli.ledger import show
from dpfl.data import Federation
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.events import add_all
from dpfl.privacy.statement import figure
from dpfl.server.steps.policy import RoundObservation, StepContext
from tests.conftest import StopsAfter, Ticking

Train = Callable[..., dpfl.Result]
RDP = accountant("rdp").epsilon
SETTINGS = {"epsilon": 4.0, "rounds": 4, "accountant": "rdp"}


def adaptive(**options: object) -> dpfl.algorithms.Algorithm:
    return ali_dpfl(sampling_rate=0.1, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ByOutput:
    """1 or 4 steps, by the sign of the first number that was released."""

    adaptive = True
    asks_raw = asks_public = reads_released = False
    raw_values = ()
    paid_slopes = 0

    def next(self, now: StepContext) -> int:
        return 4 if now.memory.get("sign", torch.zeros(1)).item() > 0 else 1

    def learn(self, seen: RoundObservation, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"sign": seen.updates[0][:1].sign()}

    def total(self, rounds: int) -> int:
        return 4 * rounds

    def notes(self, memory: Mapping[str, Tensor]) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    "algorithm", [adaptive(), adaptive(mu="paid"), als_dpfl(sampling_rate=0.1)]
)
def test_steps_that_follow_what_is_released_state_one_epsilon_whatever_came_out(
    train: Train, federation: Federation, algorithm: dpfl.algorithms.Algorithm
) -> None:
    """Fault: three seeds 'proved' 3.99, 4.41 and 4.30, each by the number of steps that its own
    outputs led to.
    """
    found = [
        train(federation, algorithm, out=f"{seed}", seed=seed, **SETTINGS).privacy
        for seed in range(3)
    ]
    (proven,) = {statement.proven for statement in found}
    assert all(
        statement.used is not None and statement.used <= proven <= 4.0 for statement in found
    )
    event = algorithm.samples.event(0) if algorithm.samples else None
    affordable = max(count for count in range(1, 601) if RDP({event: count}, 1e-5) <= 4.0)
    assert proven == RDP({event: affordable}, 1e-5)
    assert all(list(statement.most.values()) == [affordable] for statement in found)


def test_a_run_that_the_clock_ended_says_what_that_assumes(
    train: Train, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.server.clock.time", Ticking())
    privacy = train(
        federation, fedavg_dp(noise_multiplier=1.0, tau=1), seconds=8.0, accountant="rdp"
    ).privacy
    assert any("clock" in assumption for assumption in privacy.assumptions)


def test_what_was_used_depends_on_what_came_out_and_stands_beside_it_as_no_guarantee(
    train: Train, federation: Federation
) -> None:
    telling = replace(adaptive(), steps=ByOutput())
    found = [train(federation, telling, out=f"{seed}", seed=seed, **SETTINGS) for seed in range(3)]
    assert len({result.privacy.used for result in found}) > 1
    assert {result.privacy.proven for result in found} == {
        RDP({telling.samples.event(0): 16}, 1e-5)
    }
    result = min(found, key=lambda result: result.privacy.used or 0)
    assert "no guarantee" in dict(result.privacy.lines())["used"]
    assert "(at most " in dict(result.privacy.lines())["releases"]
    read = json.loads((result.folder / "statement.json").read_text())
    assert read["used"] < read["proven"]
    assert result.history[-1].epsilon == result.privacy.used


def test_a_fixed_tau_that_ran_to_its_end_used_what_is_proven(
    train: Train, federation: Federation
) -> None:
    privacy = train(
        federation, fedavg_dp(noise_multiplier=1.0, tau=3), rounds=2, accountant="rdp"
    ).privacy
    assert (
        privacy.used
        == privacy.proven
        == RDP({fedavg_dp(noise_multiplier=1.0).samples.event(0): 6}, 1e-5)
    )
    assert "used" not in dict(privacy.lines())
    assert privacy.most == privacy.releases


def test_without_a_limit_every_step_that_could_have_been_made_counts_and_is_warned_of(
    train: Train, federation: Federation
) -> None:
    privacy = train(federation, adaptive(), rounds=2, accountant="rdp").privacy
    assert privacy.proven == RDP({adaptive().samples.event(0): 200}, 1e-5)
    assert any("budget.epsilon" in warning for warning in privacy.warnings)


def test_a_resumed_run_keeps_its_plan_whatever_its_owner_allows_since(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    whole = train(federation, adaptive(), out="whole", **SETTINGS)
    with pytest.raises(KeyboardInterrupt):
        train(federation, adaptive(), progress=StopsAfter(1), **SETTINGS)
    for path in (tmp_path / "run" / "ledger").glob("*.sqlite"):
        ledger = Ledger.existing(path)
        ledger.set_limit(Limit(50.0, 1e-5, "rdp"))
        ledger.close()
    resumed = train(federation, adaptive(), resume=True, **SETTINGS)
    assert (resumed.privacy.proven, resumed.model_sha256) == (
        whole.privacy.proven,
        whole.model_sha256,
    )


def test_a_later_run_on_the_same_ledgers_counts_the_plan_and_not_what_came_of_it(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Counted by what it used, the first run's outputs would be in the second's proven epsilon."""
    first = train(
        federation,
        adaptive(mu="paid"),
        out="first",
        ledger=tmp_path / "ledgers",
        rounds=3,
        accountant="rdp",
    )
    fixed = fedavg_dp(noise_multiplier=2.0, sampling_rate=0.1)
    second = train(
        federation, fixed, out="second", ledger=tmp_path / "ledgers", rounds=1, accountant="rdp"
    )
    plan = {adaptive().samples.event(0): 303}
    assert first.privacy.proven == RDP(plan, 1e-5)
    assert second.privacy.proven == RDP(
        add_all(plan, {fixed.samples.event(0): fixed.steps.total(1)}), 1e-5
    )
    assert second.privacy.used < first.privacy.proven


def test_no_statement_is_above_a_limit_that_every_debit_kept(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    for number, algorithm in enumerate(
        (adaptive(mu="paid"), fedavg_dp(noise_multiplier=4.0, sampling_rate=0.1))
    ):
        privacy = train(
            federation,
            algorithm,
            out=str(number),
            ledger=tmp_path / "ledgers",
            epsilon=4.0,
            rounds=2,
            accountant="rdp",
        ).privacy
        assert privacy.used <= privacy.proven <= 4.0


def test_a_limit_that_came_later_does_not_lower_what_was_fixed_before(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Fault: 6.7 was proven of a run, and 1.66 of the same and one more, by the second's budget or
    a limit set in between.
    """
    first = train(
        federation,
        adaptive(),
        out="first",
        ledger=tmp_path / "ledgers",
        epsilon=8.0,
        rounds=2,
        accountant="rdp",
    )
    allowed = first.privacy.used + 0.5
    assert allowed < first.privacy.proven
    ledger = Ledger.existing(tmp_path / "ledgers" / "client-00000.sqlite")
    ledger.set_limit(Limit(allowed, 1e-5, "rdp"))
    ledger.close()
    fixed = fedavg_dp(noise_multiplier=4.0, sampling_rate=0.1, tau=1)
    settings = {"ledger": tmp_path / "ledgers", "rounds": 1, "accountant": "rdp"}
    second = train(federation, fixed, out="second", epsilon=allowed, **settings).privacy
    assert second.used <= allowed
    assert min(second.per_client.values()) > first.privacy.proven


def test_an_adaptive_run_is_certified_for_what_was_fixed_beforehand(
    train: Train, federation: Federation
) -> None:
    result = train(federation, adaptive(), **SETTINGS)
    new_key(result.folder / "key.pem")
    signed = certify(result.folder, result.folder / "key.pem")
    assert signed["certificate"]["guarantee"]["proven"] == figure(result.privacy.proven)


def test_a_ledger_that_is_shown_says_what_was_fixed_beforehand(
    train: Train, federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fault: `dpfl ledger show` gave what was used of it alone."""
    run = train(federation, adaptive(), **SETTINGS)
    show(run.folder, as_json=True)
    for row in json.loads(capsys.readouterr().out):
        assert row["epsilon"] == figure(run.privacy.used)
        assert row["proven"] == figure(run.privacy.proven)
    show(run.folder)
    assert "fixed in advance" in capsys.readouterr().out
