"""The witness: a file on other storage that a node appends to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from tests.node.history.test_rollback import reconciled, worked
from tests.node.loopback import (
    EVENT,
    STEPS,
    Open,
    join,
    round_of,
    work,
)


def test_a_witness_shows_what_was_lost_without_any_server(opened: Open, tmp_path: Path) -> None:
    witness = tmp_path / "other" / "b.witness"
    witness.parent.mkdir()
    node = opened(witness=str(witness))
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "backup")
    node = opened(witness=str(witness))
    worked(node, 1, 2)
    node.service.close()
    assert len(witness.read_text().splitlines()) == 2 + 3, (
        "a line for every start and for every release"
    )
    shutil.rmtree(node.folder)
    shutil.copytree(tmp_path / "backup", node.folder)
    with pytest.raises(DpflError, match="dpfl ledger reconcile"):
        opened(witness=str(witness))
    reconciled(node.folder)
    assert node.spending() == {EVENT: 3 * STEPS}
    assert opened(witness=str(witness))(join(run="another")).header["kind"] == "joined"


def test_a_witness_that_is_gone_or_that_another_wrote_to_ends_the_work(
    opened: Open, tmp_path: Path
) -> None:
    witness = tmp_path / "b.witness"
    node = opened(witness=str(witness))
    worked(node, 0)
    node.service.close()
    shutil.copytree(node.folder, tmp_path / "clone")
    node = opened(witness=str(witness))
    worked(node)
    with pytest.raises(DpflError, match="lacks releases"):
        opened("clone", witness=str(witness))
    with witness.open("ab") as file:
        file.write(witness.read_bytes().splitlines(keepends=True)[0])
    before = node.rows()
    assert node.refused(work(round_of(1))) == "rolled-back"
    witness.unlink()
    assert node.refused(work(round_of(1))) == "ledger"
    assert node.rows() == before, "nothing was debited for either"
    node.service.close()
    with pytest.raises(DpflError, match=r"witness .* is gone"):
        opened(witness=str(witness))
    reconciled(node.folder)
    assert opened(witness=str(witness))(join()).header["kind"] == "joined"


def test_a_line_that_was_broken_off_is_no_evidence_and_other_words_are(
    opened: Open, tmp_path: Path
) -> None:
    witness = tmp_path / "b.witness"
    node = opened(witness=str(witness))
    worked(node, 0)
    node.service.close()
    whole = witness.read_bytes()
    witness.write_bytes(whole + whole[:50])
    node = opened(witness=str(witness))
    assert witness.read_bytes().startswith(whole)
    assert len(witness.read_bytes().splitlines()) == 3
    node.service.close()
    witness.write_bytes(b"something else\n" + whole)
    with pytest.raises(DpflError, match="line 1 is not a head"):
        opened(witness=str(witness))


def test_a_witness_in_the_node_s_own_folder_is_refused(opened: Open) -> None:
    with pytest.raises(DpflError, match="on other storage"):
        opened(witness="b.witness")
