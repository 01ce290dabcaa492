"""Verifies a certificate: anybody can check what a run cost in privacy, and must trust nobody.

A certificate is a JSON file with two parts: the contents (`sections.py`) and a signature over their
canonical bytes. `verify` reads the file and runs independent checks. Each is a `VerificationCheck`
with an outcome in words, findings (what is wrong) and what it could not check.

From the file alone (with `nodes`, also from the statements of the nodes):

1. `signature`: the contents are what the key in the certificate signed.
2. `epsilon`, `claim` (`recompute.py`): the accountant computes every epsilon again from the listed
   releases. The certificate states no figure that this cannot reproduce.
3. `accounts`, `issued` (`recompute.py`): the list of accounts is consistent, and the certificate is
   not older than the last debit.
4. `pages` (`attached_files.py`): the printed page and the model card beside the file say the same.
5. The statements of nodes (`nodes.py`), each signed by its own node, agree with the certificate.

With the folder of the run (`run_checks.py`), the same contents are made again from the record, the
checkpoint and the ledgers, and must equal the certificate. With `data`, the data is loaded and
hashed again.

Nothing a certificate says is evidence by itself. So a verdict without findings lists what nobody
could check (`Verdict.not_checked`), such as whose key it is.

    verdict = verify(Path("runs/first/certificate.json"))
    verdict.findings     # empty where everything that could be checked is as the certificate says
    verdict.not_checked  # what nobody could check
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpfl.bad_values import invalid
from dpfl.certificate.attached_files import check_attached, check_pages
from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.nodes import verify_nodes
from dpfl.certificate.reading import strict_json
from dpfl.certificate.recompute import check_claim, check_epsilon, check_issue, check_listing
from dpfl.certificate.run_checks import check_run
from dpfl.certificate.sections import Certificate
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.protocol.keys import fingerprint, is_signed, load_public
from dpfl.run.records.digests import code_sha256
from dpfl.run.records.folder import RunFolder

OLDER = ("dpfl certificate 1",)


@keep_old_names(unchecked="not_checked")
@dataclass(frozen=True)
class Verdict:
    """The outcome of all checks of one certificate.

    Attributes:
        checks: The checks in their order.
        certificate: The contents, or None where the file is not a complete certificate.
    """

    checks: tuple[VerificationCheck, ...]
    certificate: Certificate | None = None

    @property
    def findings(self) -> list[str]:
        """What is wrong, one sentence each; none means that every check passed."""
        return [finding for check in self.checks for finding in check.findings]

    @property
    def not_checked(self) -> list[str]:
        """What could not be checked here, one sentence each; a good verdict does not cover it."""
        return [line for check in self.checks for line in check.not_checked]

    def to_dict(self) -> dict[str, Any]:
        """Returns the verdict for JSON.

        Returns:
            Whether all is good, the findings, the outcome of each check, and what was not checked.
        """
        checks = {
            check.name: "failed" if check.findings else check.outcome for check in self.checks
        }
        return {
            "good": not self.findings,
            "findings": self.findings,
            "checks": checks,
            "not_checked": self.not_checked,
        }


def verify(
    file: Path,
    run: Path | None = None,
    key: Path | None = None,
    data: bool = False,
    nodes: Sequence[Path] = (),
) -> Verdict:
    """Checks a certificate.

    Args:
        file: The certificate (JSON).
        run: The folder of the run; by default the folder of the file, if it is that run.
        key: The public key of the signer that you expect.
        data: Load the data of the run, where it is available, and hash it again.
        nodes: Statements of nodes that took part in the run.

    Returns:
        The verdict. A file that is damaged or forged is a finding, not an error.

    Raises:
        DpflError: There is no such file, or `run` or `key` cannot be read.
    """
    expected_key = load_public(key) if key else None
    run_folder = RunFolder.open(run) if run else None
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise DpflError(
            f"There is no certificate {file}; make one with: dpfl certify RUN"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        return _malformed_verdict(file, str(error))
    try:
        envelope = strict_json(text)
        body, signature = envelope["certificate"], envelope["signature"]
        if set(envelope) != {"certificate", "signature"} or not isinstance(signature, str):
            raise ValueError("it holds more than a certificate and its signature")
        if isinstance(body, dict) and body.get("format") in OLDER:
            return _older(file)
        certificate = Certificate.model_validate(body)
    except ValidationError as error:
        return _malformed_verdict(file, str(invalid(error, "the certificate")))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        return _malformed_verdict(file, str(error))
    checks = [
        _signature(body, signature, certificate, expected_key),
        check_epsilon(certificate),
        check_claim(certificate),
    ]
    folder = run_folder or _beside(file, certificate)
    if folder:
        checks += check_run(folder, certificate, file, data)
    else:
        checks += _without_run(certificate, file)
    checks.append(check_pages(file, envelope, certificate, signature, folder))
    checks += verify_nodes(nodes, certificate, folder)
    return Verdict((*checks, _code(certificate)), certificate)


def _without_run(certificate: Certificate, file: Path) -> list[VerificationCheck]:
    """Runs the checks that need only the certificate and the files beside it."""
    formula = (
        ", the claimed epsilon, which comes from a formula"
        if certificate.claimed.accountant is None
        else ""
    )
    words = (
        "Without the run's folder (--run): which clients took part and how many, the algorithm, "
        "unit, delta and budget, "
        "ledgers, debits, other runs on them, what was used, rounds, entropy, adversary, "
        "assumptions, versions, data, model, "
        f"and whether it was issued after the last debit{formula}."
    )
    checks = [
        VerificationCheck("run", "not compared: give its folder with --run", not_checked=(words,))
    ]
    attachment_check = check_attached(file, certificate)
    return [
        *checks,
        check_listing(certificate, None),
        check_issue(certificate),
        *([attachment_check] if attachment_check else []),
    ]


def _older(file: Path) -> Verdict:
    """Refuses an older certificate, whose sentences were copied from the run and not computed."""
    why = (
        "has an older format, whose sentences cannot be computed again. Certify its run with this "
        "version."
    )
    return Verdict((VerificationCheck("file", "", (f"{file.name} {why}",)),))


def _malformed_verdict(file: Path, why: str) -> Verdict:
    finding = f"{file.name} is not a complete certificate ({why}); ask its signer for it again."
    return Verdict((VerificationCheck("file", "", (finding,)),))


def _beside(file: Path, certificate: Certificate) -> RunFolder | None:
    folder = RunFolder(file.resolve().parent)
    if not folder.file("experiment.toml").exists():
        return None
    same_run = folder.experiment().get("run", {}).get("id") == certificate.trained.run
    return folder if same_run else None


def _signature(
    body: Any, signature: str, certificate: Certificate, expected_key: str | None
) -> VerificationCheck:
    signer, findings = certificate.signer, []
    if not is_signed(body, signature, signer.public_key):
        findings.append(
            "The signature does not match the certificate: its contents were changed after it was "
            "signed."
        )
    try:
        true = fingerprint(signer.public_key)
    except ValueError:
        true = "none"
    if signer.fingerprint != true:
        findings.append(
            f"The fingerprint {signer.fingerprint} is not that of the key in the certificate "
            f"({true})."
        )
    if expected_key and expected_key != signer.public_key:
        findings.append(
            f"It was signed with the key {true}, not with the one given "
            f"({fingerprint(expected_key)})."
        )
    if expected_key:
        return VerificationCheck("signature", "valid, by the key of --key", tuple(findings))
    not_checked = f"Whose key signed it: compare {true} with its owner, or give --key."
    outcome = f"valid, by {true}; compare this fingerprint with its owner, or give --key"
    return VerificationCheck("signature", outcome, tuple(findings), (not_checked,))


def _code(certificate: Certificate) -> VerificationCheck:
    """Compares the code. Certificates outlive versions, so a difference is no finding."""
    here = code_sha256()
    if certificate.hashes.get("code") == here:
        return VerificationCheck("code", "this installation has the code that trained")
    version = certificate.versions.get("dpfl", "?")
    return VerificationCheck(
        "code",
        f"dpfl {version} trained; the code of this installation differs",
        not_checked=(f"The code that trained: dpfl {version}; this installation differs from it.",),
    )
