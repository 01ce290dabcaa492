"""`dpfl certify`, `dpfl verify` and `dpfl key new`: a signed account of what a run cost in
privacy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpfl import certificate as certificates
from dpfl.certificate.printed_page import audit_in_words, page
from dpfl.errors import DpflError
from dpfl.protocol.keys import default_key, public_file
from dpfl.run.folder import write_atomically

key_app = typer.Typer(help="Keys that certificates are signed with.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@key_app.command()
def new(
    file: Annotated[
        Path | None,
        typer.Argument(help="By default DPFL_KEY, or key.pem in the user's configuration."),
    ] = None,
) -> None:
    """Make a key to sign with (Ed25519); it stays with you, and its .pub file goes to those who
    verify.
    """
    path = file or default_key()
    fingerprint = certificates.new_key(path)
    print(f"private key: {path}\npublic key:  {public_file(path)}\nfingerprint: {fingerprint}")


def certify(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    key: Annotated[
        Path | None, typer.Option(help="The private key; else DPFL_KEY, else that of the user.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="By default certificate.json in the run's folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Sign what a run cost in privacy: a JSON file to verify, and a page to print beside it."""
    path = out or run / "certificate.json"
    printed = path.with_suffix(".html")
    for file in (path, printed):
        if file.exists() or path == printed:
            raise DpflError(
                f"{file} is not overwritten by a certificate; choose another name with --out, "
                "ending in .json."
            )
    made = certificates.certify(run, key)
    certificate = certificates.Certificate.model_validate(made["certificate"])
    try:
        write_atomically(
            path, json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False).encode()
        )
        write_atomically(printed, page(certificate, made["signature"]).encode())
    except OSError as error:
        raise DpflError(
            f"{path} cannot be written ({error.strerror}); choose another with --out."
        ) from error
    if as_json:
        print(json.dumps(made))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(certificates.headline(certificate).sentence, markup=False)
    console.print(
        f"signed by {certificate.signer.fingerprint}\ncertificate in {path}, to print: {printed}",
        markup=False,
    )


def verify(
    file: Annotated[Path, typer.Argument(help="The certificate (JSON).")],
    nodes: Annotated[
        list[Path] | None, typer.Argument(help="Statements of nodes of that run (JSON).")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="The run's folder; by default the certificate's, if it is one."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The public key (.pub) that it should be signed with.")
    ] = None,
    data: Annotated[
        bool,
        typer.Option("--data", help="Load the run's data, where it is here, and hash it again."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a certificate: signature, every epsilon computed again, the run it is of, and the files
    beside it.

    Exit code 1 if anything differs, or if statements of nodes are given and one is missing. What
    was not checked is listed.
    """
    verdict = certificates.verify(file, run, key, data, nodes or ())
    if as_json:
        print(json.dumps(verdict.to_dict()))
    elif verdict.findings:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        for finding in verdict.findings:
            console.print(f"dpfl: {finding}", markup=False)
        for line in verdict.unchecked:
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
    for line in verdict.unchecked:
        console.print(f"not checked: {line}", markup=False)
    told = certificate.reported
    accuracy = "accuracy not measured" if told.accuracy is None else f"accuracy {told.accuracy:.2%}"
    audited = "no audit" if told.audit is None else f"audit: {audit_in_words(told.audit)}"
    lines = f"{told.measured or accuracy}; ended by {told.stopped_by}; {audited}"
    console.print(f"as reported by the run, not checked: {lines}", markup=False)
    console.print(f"key {certificate.signer.fingerprint}", markup=False, soft_wrap=True)
    console.print(certificates.headline(certificate).sentence, markup=False)
