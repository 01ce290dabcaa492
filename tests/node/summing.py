"""Four nodes that sum together, without a network, and a server that says to each of them whatever
it likes.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpfl.client.task import ClientTask, SecureSumTerms
from dpfl.node.service import Service
from dpfl.privacy import Flat, Gaussian, Ledger, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.protocol import secure_sum_messages, task_messages
from dpfl.protocol.keys import load_public, public_key_hex
from dpfl.protocol.messages import SignedMessage
from dpfl.protocol.proposal import Proposal
from dpfl.secagg import MaskedInput, SumGroup, SumId, SurvivorList, session
from dpfl.secagg.shares import envelope_bytes
from tests.node.loopback import (
    OWNER,
    PROPOSAL,
    ROUNDS,
    RUN,
    SAMPLES,
    TASK,
    Asked,
    ask,
    new_node,
    vector,
    write_policy,
)

NAMES = ("a", "b", "c", "d")
SHARED = NoiseShares(3, 1)
RELEASE = Release(Poisson(0.2), Flat(1.0), Gaussian(1.0), noise_shares=SHARED)
EVENT = RELEASE.event(SAMPLES)


def task(name: str, round: int = 0, **changes: Any) -> ClientTask:
    given = replace(
        TASK, steps=1, samples=RELEASE, secure_sum=SecureSumTerms(1.0, 60.0, len(NAMES))
    )
    return replace(given, round=round, client=NAMES.index(name), **changes)


class Together:
    """Every letter is one that the owner of the run signed; answers are read and nothing else is
    done with them.
    """

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        for place, name in enumerate(NAMES):
            new_node(folder / name, first=SAMPLES * place, name=name)
        self.keys = {name: load_public(folder / name / "node.pem.pub") for name in NAMES}
        self.nodes: dict[str, Asked] = {}
        self._set_ups: list[str] = []
        for name in NAMES:
            self.open(name, **changes)

    def open(self, name: str, **changes: Any) -> Asked:
        """Started (again)."""
        if name in self.nodes:
            self.nodes[name].service.close()
        policy = write_policy(
            self.folder / name, **{"secure": {"members": self.keys}, "name": name, **changes}
        )
        self.nodes[name] = Asked(self.folder / name, Service.open(policy))
        return self.nodes[name]

    def proposal(self, name: str, **changes: Any) -> Proposal:
        given = replace(
            PROPOSAL, federation=NAMES, noise="shared", sums=SHARED, keys=tuple(self.keys.values())
        )
        return replace(given, client=NAMES.index(name), **{"events": ((EVENT, ROUNDS),), **changes})

    def join(self, name: str, run: str = RUN, **changes: Any) -> bytes:
        return ask("join", to=name, run=run, proposal=self.proposal(name, **changes).to_words())

    def joined(self, run: str = RUN, **changes: Any) -> None:
        for name in NAMES:
            assert self.nodes[name](self.join(name, run, **changes)).header["kind"] == "joined"

    def group(self, run: str = RUN, **changes: Any) -> SumGroup:
        together = self.proposal("a", **changes).together(run, public_key_hex(OWNER.public_key()))
        return SumGroup(together, self.keys, SHARED.survivors, SHARED.colluders)

    def card(self, to: str, task_name: str = "set-up", run: str = RUN) -> bytes:
        """Orders are numbered as they are first named."""
        if task_name not in self._set_ups:
            self._set_ups.append(task_name)
        return ask("card", to=to, run=run, order=task_name, number=self._set_ups.index(task_name))

    def cards(
        self, names: tuple[str, ...] = NAMES, run: str = RUN, task_name: str = "set-up"
    ) -> list[dict[str, str]]:
        return [self.nodes[name](self.card(name, task_name, run)).header["card"] for name in names]

    def set_up(
        self,
        names: tuple[str, ...] = NAMES,
        run: str = RUN,
        task_name: str = "set-up",
        **changes: Any,
    ) -> str:
        cards = self.cards(names, run, task_name)
        found = session(
            self.group(run, **changes).among(names),
            [secure_sum_messages.advertisement_from_words(card) for card in cards],
        )
        for name in names:
            assert (
                self.nodes[name](
                    ask("meet", to=name, run=run, order=task_name, cards=cards)
                ).header["session"]
                == found
            )
        return found

    def work(
        self, session: str, asked: ClientTask, model: np.ndarray | None = None, run: str = RUN
    ) -> bytes:
        words, arrays = (
            task_messages.task_to_words(asked),
            {"model": vector() if model is None else model},
        )
        name = NAMES[asked.client]
        return ask(
            "work",
            to=name,
            run=run,
            order=task_messages.task_name(asked, session),
            task=words,
            arrays=arrays,
        )

    def masked(
        self,
        session: str,
        name: str,
        round: int = 0,
        members: tuple[str, ...] = NAMES,
        **changes: Any,
    ) -> MaskedInput:
        asked = task(name, round, **changes)
        answer = self.nodes[name](self.work(session, asked))
        assert answer.header["kind"] == "masked", answer.header
        return secure_sum_messages.input_from_arrays(
            answer.arrays, at(session, asked), name, members
        )

    def survivors(
        self,
        session: str,
        to: str,
        names: tuple[str, ...],
        sent: dict[str, MaskedInput],
        round: int = 0,
    ) -> bytes:
        """The list that this node is shown, with what the others sent for it."""
        blank = bytes(envelope_bytes(len(NAMES)))
        envelopes = {
            name: sent[name].envelopes[to] if name in sent else blank
            for name in names
            if name != to
        }
        shown = SurvivorList(at(session, task(to, round)), names, envelopes)
        words, arrays = secure_sum_messages.survivors_to_fields(shown, len(NAMES))
        return ask(
            "survivors",
            to=to,
            order=task_messages.task_name(task(to, round), session),
            arrays=arrays,
            **words,
        )

    def votes(self, session: str, to: str, signatures: dict[str, str], round: int = 0) -> bytes:
        return ask(
            "votes",
            to=to,
            order=task_messages.task_name(task(to, round), session),
            votes=signatures,
        )

    def spending(self, name: str) -> dict[Any, int]:
        with closing(Ledger.read(self.folder / name / "ledger" / f"{name}.sqlite")) as ledger:
            return ledger.spending()

    def close(self) -> None:
        for node in self.nodes.values():
            node.service.close()


def at(session: str, asked: ClientTask, model: np.ndarray | None = None) -> SumId:
    return secure_sum_messages.sum_id_of(asked, session, vector() if model is None else model)


def said(message: SignedMessage) -> str:
    """What an answer is, in a word."""
    return str(message.header.get("reason", message.header["kind"]))
