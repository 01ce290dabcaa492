"""A checkpoint gives the state back bit for bit, or says what is wrong with it."""

from pathlib import Path

import pytest
import torch

from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, NoClip, Quantile, Release
from dpfl.run.records.digests import vector_sha256
from dpfl.run.records.folder import RunFolder
from dpfl.server.state import RunState
from tests.run.disks import fail_at


@pytest.mark.parametrize("step", ["flush", "rename"])
def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder, first = RunFolder.create(tmp_path / "run"), state(round=1)
    folder.save_checkpoint(first)
    with monkeypatch.context() as patched:
        fail_at(step, patched)
        with pytest.raises(DpflError, match=r"No space left on device.*resume"):
            folder.save_checkpoint(state(round=2))
    assert folder.load_checkpoint(state()).round == 1


def state(round: int = 0, clients: Release | None = None, **options: object) -> RunState:
    samples = Release(clip=Flat(0.5), noise=Gaussian(1.0))
    vector = torch.randn(7, generator=torch.Generator().manual_seed(round))
    return RunState(
        vector, -vector, samples, clients or Release(clip=NoClip()), [3, 0, 9], round, **options
    )


def test_a_checkpoint_gives_the_whole_state_back_bit_for_bit(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    quantile = Release(clip=Quantile(0.1, count_noise=3.0), noise=Gaussian(1.0))
    moved = Release(clip=quantile.clip.adapt(0.123), noise=Gaussian(1.0))
    saved = state(4, moved, iterations=12, bytes=2**40, seconds=0.1 + 0.2)
    folder.save_checkpoint(saved)
    loaded = folder.load_checkpoint(state(0, quantile))
    assert torch.equal(loaded.vector, saved.vector)
    assert torch.equal(loaded.velocity, saved.velocity)
    assert loaded.clients == saved.clients
    assert loaded.samples == saved.samples
    names = ("remaining", "round", "iterations", "bytes", "seconds")
    assert [getattr(loaded, name) for name in names] == [getattr(saved, name) for name in names]


def test_where_no_round_was_finished_the_fresh_state_is_the_checkpoint(tmp_path: Path) -> None:
    fresh = state()
    assert RunFolder.create(tmp_path / "run").load_checkpoint(fresh) is fresh


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.save_checkpoint(state())
    other = RunState(torch.zeros(8), torch.zeros(8), None, Release(), [])
    with pytest.raises(DpflError, match="another model"):
        folder.load_checkpoint(other)


def test_the_counters_of_a_checkpoint_are_read_without_a_fresh_state(tmp_path: Path) -> None:
    folder, saved = RunFolder.create(tmp_path / "run"), state(3, iterations=6)
    folder.save_checkpoint(saved)
    counters = folder.counters()
    assert (counters["round"], counters["iterations"]) == (3, 6)
    assert counters["model_sha256"] == vector_sha256(saved.vector)


def test_a_tensor_that_was_exchanged_is_found_by_its_digest(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.save_checkpoint(state(1))
    path = folder.file("checkpoint.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DpflError, match="have changed since"):
        folder.load_checkpoint(state())
    with pytest.raises(DpflError, match="have changed since"):
        folder.counters()
