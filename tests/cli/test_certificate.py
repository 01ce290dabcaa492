"""`dpfl key`, `certify` and `verify` as a user meets them."""

from __future__ import annotations

import json

from tests.cli.test_app import SMALL, dpfl, refused


def test_from_a_run_to_a_verified_certificate_and_an_altered_one(capsys, tmp_path):
    run, key = str(tmp_path / "run"), str(tmp_path / "key.pem")
    assert dpfl(capsys, "run", *SMALL, "--set", "budget.rounds=1", "--out", run)[0] == 0
    assert "dpfl key new" in refused(capsys, "certify", run, "--key", key)
    assert "fingerprint: sha256:" in dpfl(capsys, "key", "new", key)[1]
    assert "never overwritten" in refused(capsys, "key", "new", key)
    code, out, _ = dpfl(capsys, "certify", run, "--key", key)
    assert code == 0
    assert "only while nobody knows the seed" in out
    assert (tmp_path / "run" / "certificate.html").exists()
    assert "not overwritten" in refused(capsys, "certify", run, "--key", key)

    file = tmp_path / "run" / "certificate.json"
    code, out, _ = dpfl(capsys, "verify", str(file), "--key", key + ".pub", "--data")
    assert code == 0
    assert "hashed again, as certified" in out
    code, out, _ = dpfl(capsys, "verify", str(file))
    assert code == 0
    assert json.loads(file.read_text())["certificate"]["signer"]["fingerprint"] in out.split()
    assert "as reported by the run, not checked: accuracy" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert json.loads(dpfl(capsys, "verify", str(file), "--json")[1])["good"] is True

    envelope = json.loads(file.read_text())
    envelope["certificate"]["guarantee"]["proven"] = 0.5
    file.write_text(json.dumps(envelope))
    code, _, err = dpfl(capsys, "verify", str(file))
    assert code == 1
    assert "changed after it was signed" in err
    assert "states 0.5" in err
    code, out, _ = dpfl(capsys, "verify", str(file), "--json")
    assert code == 1
    assert json.loads(out)["good"] is False
    assert "no certificate" in refused(capsys, "verify", str(tmp_path / "none.json"))
