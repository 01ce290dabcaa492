"""`dpfl key`, `certify` and `verify` as a user meets them."""

from __future__ import annotations

import json
import re

from tests.cli.command_line import SMALL, dpfl, refused


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
    assert "would be overwritten" in refused(capsys, "certify", run, "--key", key)

    file = tmp_path / "run" / "certificate.json"
    code, out, _ = dpfl(capsys, "verify", str(file), "--key", key + ".pub", "--data")
    assert code == 0
    assert "hashed again, as certified" in out
    code, out, _ = dpfl(capsys, "verify", str(file))
    assert code == 0
    assert json.loads(file.read_text())["certificate"]["signer"]["fingerprint"] in out.split()
    assert "reported by the run, not checked: measured: accuracy" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert "not checked: When it was issued" in out
    verdict = json.loads(dpfl(capsys, "verify", str(file), "--json")[1])
    assert verdict["good"] is True
    assert any(line.startswith("When it was issued") for line in verdict["not_checked"])

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


def test_forged_epsilons_are_exit_code_2_before_signing_and_1_after_it(capsys, tmp_path):
    run, key = tmp_path / "run", str(tmp_path / "key.pem")
    assert dpfl(capsys, "run", *SMALL, "--set", "budget.rounds=1", "--out", str(run))[0] == 0
    assert dpfl(capsys, "key", "new", key)[0] == 0
    true = {name: (run / name).read_text() for name in ("statement.json", "README.md")}
    told = json.loads(true["statement.json"])
    forged = {
        "statement.json": json.dumps(told | {"proven": 0.01, "used": 0.01}),
        "README.md": re.sub(
            r"epsilon [0-9.]+ at delta", "epsilon 0.01 at delta", true["README.md"]
        ),
    }
    for name, text in forged.items():
        (run / name).write_text(text)
        assert name in refused(capsys, "certify", str(run), "--key", key)
        assert not (run / "certificate.json").exists()
        (run / name).write_text(true[name])
    assert dpfl(capsys, "certify", str(run), "--key", key)[0] == 0
    forged["certificate.html"] = (
        (run / "certificate.html").read_text().replace("Epsilon ", "Epsilon below ")
    )
    true["certificate.html"] = (run / "certificate.html").read_text()
    for name, text in forged.items():
        (run / name).write_text(text)
        code, out, err = dpfl(capsys, "verify", str(run / "certificate.json"))
        assert code == 1
        assert name in err
        assert out == ""
        (run / name).write_text(true[name])
    assert dpfl(capsys, "verify", str(run / "certificate.json"))[0] == 0
