"""The table of a federation has one row per client, and is cut where there are many."""

from __future__ import annotations

import io

import torch
from rich.console import Console

from dpfl.data import IID, Dataset, DataSource
from dpfl.views.terminal.federation_table import federation_table


def federation(clients, classes=10, public=0):
    data = Dataset("small", torch.zeros(3000, 2), torch.arange(3000) % classes, classes)
    return DataSource(data, data).split(clients, IID(), 0, public)


def text(table):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_has_a_row_a_client():
    shown = text(federation_table(federation(3, classes=3, public=1)))
    assert "small, iid" in shown
    assert [line.split()[0] for line in shown.splitlines() if line[:2].strip().isdigit()] == [
        "0",
        "1",
        "2",
    ]
    assert "all 3" in shown
    assert "public 1" in shown


def test_the_table_of_many_clients_is_cut():
    shown = text(federation_table(federation(50)))
    assert "30 more" in shown
    assert "smallest client 60 images" in shown
    assert len(shown.splitlines()) < 32


def test_the_table_of_many_classes_counts_them():
    shown = text(federation_table(federation(3, classes=47)))
    assert "classes" in shown
    assert " 47" in shown
