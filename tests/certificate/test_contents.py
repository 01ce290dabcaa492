"""A certificate says what the ledgers say, and says it loudly where that is nothing."""

from __future__ import annotations

import json
import shutil

import pytest

from dpfl.certificate import Certificate, certify, headline
from dpfl.certificate.contents import display_figure
from dpfl.certificate.figures import number
from dpfl.certificate.printed_page import page
from dpfl.errors import DpflError
from dpfl.privacy import Poisson, accountant
from dpfl.protocol.keys import load_public, public_file
from tests.privacy.forging import forge


def made(folder, key):
    return Certificate.model_validate(certify(folder, key)["certificate"])


def test_a_run_with_noise_on_samples_has_an_account_a_client(run_of, key):
    certificate = made(run_of("samples"), key)
    epsilon = accountant("pld").epsilon({Poisson(0.05).event(1.0, 250): 2}, 1e-5)
    assert [account.name for account in certificate.accounts] == [
        f"client-{number:05d}" for number in range(4)
    ]
    for account in certificate.accounts:
        assert account.proven == pytest.approx(epsilon, abs=2e-6)
        assert [released.count for released in account.releases] == [2]
        assert account.debits == 2
        assert account.other_runs == 0
    assert (
        certificate.guarantee.proven == certificate.guarantee.median == certificate.guarantee.lowest
    )
    assert certificate.signer.public_key == load_public(public_file(key))
    assert headline(certificate).level == "proven"


def test_what_the_paper_claims_is_its_own_accountant_on_what_it_counts(run_of, key):
    claimed = made(run_of("samples"), key).claimed
    assert claimed.accountant == "rdp-classic"
    assert claimed.epsilon == pytest.approx(
        accountant("rdp-classic").epsilon({Poisson(0.05).event(1.0, 250): 2}, 1e-5), abs=2e-6
    )


def test_a_run_with_noise_on_clients_has_one_account(run_of, key):
    certificate = made(run_of("clients"), key)
    assert [account.name for account in certificate.accounts] == ["federation"]
    assert certificate.guarantee.unit == "client"


def test_where_tau_follows_what_came_out_used_stands_beside_what_is_proven(key, federation, train):
    import dpfl

    result = train(
        federation,
        dpfl.algorithms.ali_dpfl(noise_multiplier=1.2, sampling_rate=0.2),
        epsilon=6.0,
        rounds=1,
    )
    stated = made(result.folder, key).guarantee
    assert number(stated.used) == pytest.approx(result.privacy.used, abs=2e-6)
    assert number(stated.proven) >= result.privacy.proven > number(stated.used)


def test_a_seed_is_a_condition_that_the_headline_names(run_of, key):
    certificate = made(run_of("keyed"), key)
    verdict = headline(certificate)
    assert verdict.level == "condition"
    assert "while nobody knows the seed" in verdict.sentence
    assert '"seed":' not in certificate.model_dump_json()


def test_a_published_system_that_leaks_gets_a_certificate_of_no_guarantee(run_of, key):
    certificate = made(run_of("published"), key)
    verdict = headline(certificate)
    assert certificate.guarantee.proven == "unbounded"
    assert verdict.level == "nothing"
    assert verdict.sentence.startswith("No epsilon holds")
    assert "label histogram" in verdict.sentence
    claim = f"claims {display_figure(certificate.claimed.epsilon)}; that is no guarantee"
    assert claim in verdict.sentence


def test_a_run_without_noise_is_refused(run_of, key):
    with pytest.raises(DpflError, match="No guarantee is proven"):
        certify(run_of("plain"), key)


def test_an_unfinished_run_is_refused(run_of, key):
    folder = run_of("samples")
    (folder / "statement.json").unlink()
    with pytest.raises(DpflError, match="not finished"):
        certify(folder, key)


def test_a_ledger_that_lost_debits_is_not_certified(run_of, key):
    folder = run_of("samples")
    forge(folder / "ledger" / "client-00001.sqlite", "DELETE FROM debits WHERE id = 2")
    with pytest.raises(DpflError, match=r"client-00001\.sqlite .* lost debits"):
        certify(folder, key)


def test_another_model_in_the_folder_is_not_certified(run_of, key):
    folder = run_of("samples")
    shutil.copy(run_of("keyed") / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(DpflError, match="not the model"):
        certify(folder, key)


def test_the_audit_is_what_the_run_reports_and_no_more_than_its_verdict(run_of, key):
    folder = run_of("samples")
    audit = {
        "claimed": 1.0,
        "proven": 2.0,
        "measured": 0.5,
        "verdict": "holds",
        "more": [1, {"a": None}],
    }
    (folder / "audit.json").write_text(json.dumps(audit))
    told = made(folder, key).reported.audit
    assert told is not None
    assert {name: told[name] for name in ("claimed", "proven", "measured", "verdict")} == {
        "claimed": 1.0, "proven": 2.0, "measured": 0.5, "verdict": "holds",
    }  # fmt: skip
    assert "more" not in told
    assert "played" not in told
    (folder / "audit.json").write_text(json.dumps(audit | {"played": ["ledgers", "noise"]}))
    certificate = made(folder, key)
    assert certificate.reported.audit["played"] == ["ledgers", "noise"]
    assert "holds in ledgers, noise" in page(certificate, "00")
    (folder / "audit.json").write_text(
        json.dumps(audit | {"game": "membership of the run", "scope": "the run"})
    )
    private = made(folder, key).reported.audit
    assert private is not None
    assert private["measured"] is None
    assert private["scope"] is None
    (folder / "audit.json").write_text('{"measured": NaN}')
    with pytest.raises(DpflError, match=r"audit\.json cannot be read"):
        certify(folder, key)


def test_releases_of_another_run_on_the_same_ledgers_are_counted(
    run_of, key, federation, train, tmp_path
):
    import dpfl

    algorithm = dpfl.algorithms.fedavg_dp(noise_multiplier=1.0)
    for name in ("first", "second"):
        train(
            federation, algorithm, out=name, rounds=1, ledger=tmp_path / "ledgers", entropy="system"
        )
    account = made(tmp_path / "first", key).accounts[0]
    assert account.other_runs == 1
    assert [released.count for released in account.releases] == [2]
