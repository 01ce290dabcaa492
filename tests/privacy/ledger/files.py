"""Ledgers of many pages, and the rows of one."""

import sqlite3

from tests.privacy.workers import EVENT, open_ledger


def rows(path, table="debits"):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
    finally:
        connection.close()


def fill(path, debits=400):
    """A ledger of many pages, closed, so that everything lies in the one file."""
    ledger = open_ledger(path)
    for number in range(debits):
        ledger.debit("run", f"a rather long name of a release, number {number}", EVENT, 1)
    ledger.close()


def start(context, target, *arguments):
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(*arguments, sender), daemon=True)
    process.start()
    return process, receiver
