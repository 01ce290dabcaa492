"""The progress of a download does what pooch asks of a bar."""

from __future__ import annotations

from dpfl.views.terminal.download_progress import watch


def test_a_bar_counts_bytes_up_to_the_total_and_begins_again() -> None:
    with watch("mnist.gz") as bar:
        bar.total = 100
        bar.update(30)
        bar.update(40)
        (task,) = bar._progress.tasks
        assert (task.description, task.completed, task.total) == ("mnist.gz", 70, 100)
        bar.reset()
        assert task.completed == 0
        bar.close()
    assert bar._progress.live.is_started is False
