"""What a run will do is worked out before anything is written, and the same for everybody."""

import tomllib

import pytest

import dpfl
from dpfl.algorithms import dp_fedavg, fedavg, fedavg_dp
from dpfl.certificate.finished_run import accounts_of
from dpfl.errors import DpflError
from dpfl.models import as_model
from dpfl.run.propose import ProposalSpec, build_proposal
from dpfl.run.records.digests import without_none
from dpfl.run.records.folder import RunFolder
from dpfl.run.resolve import RunSpec, resolve
from tests.conftest import MODEL

PLANNED = fedavg_dp(tau=2, sampling_rate=0.1, rate=0.5)
BUDGET = dpfl.Budget(epsilon=4.0, rounds=3)


def spec(federation, algorithm=PLANNED, budget=BUDGET, **groups):
    return RunSpec(as_model(MODEL), federation, algorithm, budget, **groups)


def test_nothing_is_written_and_the_same_spec_gives_the_same_record(federation, tmp_path):
    asked = spec(federation, execution=dpfl.Execution(out=tmp_path / "run"))
    assert resolve(asked).record() == resolve(asked).record()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("algorithm", [PLANNED, dp_fedavg(cohort=2)], ids=lambda one: one.name)
def test_run_and_certificate_have_what_was_resolved(train, federation, algorithm):
    resolved = resolve(spec(federation, algorithm))
    result = train(federation, algorithm, epsilon=4.0, rounds=3)
    record = tomllib.loads((result.folder / "experiment.toml").read_text())
    assert record["resolved"] == without_none(resolved.record()["resolved"])
    accounts = accounts_of(RunFolder(result.folder), record)
    for name in ("algorithm", "budget", "accountant", "limit", "owners", "warnings", "horizon"):
        assert getattr(accounts.terms, name) == getattr(resolved.terms, name), name


def test_the_proposal_to_nodes_plans_the_noise_of_the_run(federation):
    resolved = resolve(spec(federation))
    asked = ProposalSpec(
        as_model(MODEL), PLANNED, BUDGET, federation.train, federation.test, federation.names
    )
    proposal = build_proposal(asked)(0)
    assert proposal.accountant == resolved.terms.accountant
    assert dict(proposal.events) == resolved.algorithm.spending(resolved.terms.horizon, 0)


def test_a_limit_holds_for_sound_systems_with_an_epsilon_only(federation):
    assert resolve(spec(federation)).terms.limit is not None
    without = dpfl.Budget(rounds=3)
    noisy = fedavg_dp(tau=2, sampling_rate=0.1, noise_multiplier=1.0)
    assert resolve(spec(federation, noisy, without)).terms.limit is None
    assert resolve(spec(federation, fedavg(), without)).terms.limit is None


def test_a_ledger_cannot_pay_for_a_system_without_noise(federation, tmp_path):
    privacy = dpfl.Privacy(ledger=tmp_path)
    with pytest.raises(DpflError, match="no ledger can account for it"):
        resolve(spec(federation, fedavg(), dpfl.Budget(rounds=1), privacy=privacy))
