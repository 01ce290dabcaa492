"""What a watcher sees of a process."""

from __future__ import annotations

import json

import httpx
import pytest

from dpfl.errors import DpflError
from dpfl.transports.flower.watch import MetricSample, MetricsEndpoint, alone, text
from tests.conftest import PATIENCE


def test_figures_are_written_as_prometheus_reads_them() -> None:
    figures = [
        alone("dpfl_letters_total", "counter", "Letters answered.", 3),
        MetricSample(
            "dpfl_refusals_total",
            "counter",
            "Letters refused.",
            {'reason="too-large"': 1, 'reason="over-budget"': 2},
        ),
    ]
    assert text(figures).splitlines() == [
        "# HELP dpfl_letters_total Letters answered.",
        "# TYPE dpfl_letters_total counter",
        "dpfl_letters_total 3",
        "# HELP dpfl_refusals_total Letters refused.",
        "# TYPE dpfl_refusals_total counter",
        'dpfl_refusals_total{reason="too-large"} 1',
        'dpfl_refusals_total{reason="over-budget"} 2',
    ]


def test_a_watcher_is_told_what_is_true_when_it_looks() -> None:
    messages, trouble = [1.0], [""]
    with MetricsEndpoint(
        0,
        lambda: [alone("dpfl_letters_total", "counter", "Letters.", messages[0])],
        lambda: trouble[0],
    ) as watch:
        address = f"http://127.0.0.1:{watch.port}"
        assert httpx.get(f"{address}/health", timeout=PATIENCE).json() == {
            "healthy": True,
            "trouble": "",
        }
        messages[0], trouble[0] = 2.0, "the SuperNode ended"
        assert httpx.get(f"{address}/metrics", timeout=PATIENCE).text.endswith(
            "dpfl_letters_total 2.0\n"
        )
        ill = httpx.get(f"{address}/health", timeout=PATIENCE)
        assert (ill.status_code, json.loads(ill.text)["trouble"]) == (503, "the SuperNode ended")
        assert httpx.get(f"{address}/elsewhere", timeout=PATIENCE).status_code == 404
        with pytest.raises(DpflError, match="to another port"):
            MetricsEndpoint(watch.port, list, str)
