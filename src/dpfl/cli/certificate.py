"""The commands `dpfl certify`, `dpfl verify` and `dpfl key new`: sign what privacy cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpfl import certificate as certificates
from dpfl.certificate.certificate_view import CertificateView
from dpfl.certificate.printed_page import page
from dpfl.errors import DpflError
from dpfl.protocol.keys import default_key, public_file
from dpfl.run.records.folder import write_atomically
from dpfl.views.audit_view import AuditView

key_app = typer.Typer(help="Make keys that sign certificates.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@key_app.command()
def new(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The file; by default DPFL_KEY, or key.pem in the user's configuration."
        ),
    ] = None,
) -> None:
    """Make an Ed25519 key that signs certificates.

    Keep the private key. Give the .pub file to those who verify.
    """
    path = file or default_key()
    fingerprint = certificates.new_key(path)
    print(f"private key: {path}\npublic key:  {public_file(path)}\nfingerprint: {fingerprint}")


def certify(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    key: Annotated[
        Path | None, typer.Option(help="The private key; by default DPFL_KEY, or the user's key.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file; by default certificate.json in the folder of the run."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Sign the privacy cost of a run: a JSON certificate to verify, and a page to print."""
    path = out or run / "certificate.json"
    page_path = path.with_suffix(".html")
    if path == page_path:
        raise DpflError(
            f"--out {path} is reserved for the printable page; choose a file that ends in .json."
        )
    for file in (path, page_path):
        if file.exists():
            raise DpflError(
                f"{file} exists already and would be overwritten; choose another file with --out."
            )
    envelope = certificates.certify(run, key)
    certificate = certificates.Certificate.model_validate(envelope["certificate"])
    try:
        write_atomically(
            path, json.dumps(envelope, indent=2, ensure_ascii=False, allow_nan=False).encode()
        )
        write_atomically(page_path, page(certificate, envelope["signature"]).encode())
    except OSError as error:
        raise DpflError(
            f"{path} cannot be written ({error.strerror}); choose another file with --out."
        ) from error
    if as_json:
        print(json.dumps(envelope))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(certificates.headline(certificate).sentence, markup=False)
    console.print(
        f"signed by {certificate.signer.fingerprint}\ncertificate: {path}\nto print: {page_path}",
        markup=False,
    )


def verify(
    file: Annotated[Path, typer.Argument(help="The certificate (JSON).")],
    nodes: Annotated[
        list[Path] | None, typer.Argument(help="The statements of nodes of that run (JSON).")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the run; by default the folder of the certificate, if it is a run."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The public key (.pub) of the signer that you expect.")
    ] = None,
    data: Annotated[
        bool,
        typer.Option(
            "--data", help="Load the data of the run, where it is available, and hash it again."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a certificate: its signature, every epsilon, its run, and the files beside it.

    The exit code is 1 if anything differs, or if statements of nodes are given and one is missing.
    The command lists what it could not check.
    """
    verdict = certificates.verify(file, run, key, data, nodes or ())
    if as_json:
        print(json.dumps(verdict.to_dict()))
    elif verdict.findings:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        for finding in verdict.findings:
            console.print(f"dpfl: {finding}", markup=False)
        for line in verdict.not_checked:
            console.print(f"not checked: {line}", markup=False)
    elif verdict.certificate:
        _show(verdict, verdict.certificate, Console(highlight=False))
    if verdict.findings:
        raise typer.Exit(1)


def _show(
    verdict: certificates.Verdict, certificate: certificates.Certificate, console: Console
) -> None:
    table = Table("checked", "outcome", box=box.SIMPLE_HEAD)
    table.columns[1].overflow = "fold"
    for check in verdict.checks:
        table.add_row(check.name, check.outcome)
    console.print(table)
    for line in verdict.not_checked:
        console.print(f"not checked: {line}", markup=False)
    view = CertificateView.of(certificate)
    lines = [f"{heading.lower()}: {text}" for heading, text in view.reported]
    if not certificate.reported.audit:
        lines.append(AuditView.of(None).measured)
    console.print(f"reported by the run, not checked: {'; '.join(lines)}", markup=False)
    console.print(f"key {certificate.signer.fingerprint}", markup=False, soft_wrap=True)
    console.print(view.verdict.sentence, markup=False)
