"""The node that owns the data: it debits its own ledger, trains, clips, adds its noise, and replies
once all of it is done.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ROWS, ClientDataset, QueryData
from dpfl.client.drift import Drift
from dpfl.client.local_training import (
    clipped_batch,
    clipped_sum,
    gradient_norms,
    plain_steps,
    private_steps,
)
from dpfl.client.module_randomness import drawing_from
from dpfl.client.objectives import Generator
from dpfl.client.task import (
    DIFFERENCES,
    LAST_STEP,
    ClientReply,
    ClientTask,
    rounding_sensitivity,
)
from dpfl.codec import digest_of
from dpfl.data.units import UnitGroups
from dpfl.errors import DpflError
from dpfl.gradients.chunks import SelfTest
from dpfl.gradients.clipped import (
    ClippedGradients,
    NonFinite,
    mean_loss,
    most_units,
    plain_gradient,
)
from dpfl.gradients.mixing import refuse_mixing
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models import FlatModel
from dpfl.models.flat import evaluating
from dpfl.models.row_sizes import InvariantSizes, padded_chunks
from dpfl.privacy import BudgetRefusal, Keyed, Ledger, Randomness, Release
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.clip import Clip, Groups, clip_vector
from dpfl.privacy.mechanisms.randomness import with_scope
from dpfl.privacy.mechanisms.rounding import COVER
from dpfl.privacy.mechanisms.sampling import largest_draw
from dpfl.privacy.queries.answers import Mean, shared_answer
from dpfl.tasks.noisy import count_outcomes

_log = logging.getLogger("dpfl")

OPEN_LEDGERS = 256
MANY_ADDITIONS = 4096
"""More additions than a chunk has in usual models: below the limit for so many, nothing is looked
at.
"""
DIGESTED = 256
"""Rows that are copied at a time to digest a client's data."""


class ClientRunner:
    """Works for any client of its site, one task at a time; an update is valid until the next."""

    def __init__(self, site: ClientContext) -> None:
        if site.ledgers and (site.ledgers.unit == "person") != (site.unit_ids is not None):
            raise DpflError(
                "A ledger for persons needs to know whose each row is, and no other ledger does."
            )
        self.site = site
        self._persons: dict[int, UnitGroups] = {}
        self.model = FlatModel(
            site.model.build(tuple(site.x.shape[1:]), site.task.outputs, seed=0), site.task
        )
        self._room = torch.empty_like(self.model.vector)
        self._gradients: dict[Groups, ClippedGradients] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._epochs: dict[int, int] = {}
        self._digests: dict[int, str] = {}
        self._digested: tuple[Tensor, str] | None = None
        self._before: tuple[Tensor, np.ndarray] | None = None
        self._logged: set[str] = set()
        self._clerk = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")

    def reply(
        self, task: ClientTask, vector: Tensor, correction: Tensor | None = None
    ) -> ClientReply:
        """A client's failure costs that client's reply, not the round; what the user must mend ends
        the run.

        The words of a failure may hold data of the client, so that they go to the log of its own
        machine and nowhere else.
        """
        try:
            return self.work(task, vector, correction)
        except DpflError:
            raise
        except Exception as error:
            self._tell(task, error)
            return ClientReply(
                task.client, failed=f"it failed ({type(error).__name__}), its own log says why"
            )

    def _tell(self, task: ClientTask, error: Exception) -> None:
        """Every cause once, whoever has it."""
        cause = f"{type(error).__name__}: {error}"
        if cause not in self._logged:
            self._logged.add(cause)
            _log.warning("Client %d failed in round %d: %s", task.client, task.round + 1, cause)
            _log.debug("Where it failed:", exc_info=error)

    def work(
        self, task: ClientTask, vector: Tensor, correction: Tensor | None = None
    ) -> ClientReply:
        """Law 1: the event is on disk before anything derived from the data leaves; the disk writes
        while the client trains.
        """
        if refusal := self._refusal(task):
            return ClientReply(task.client, refused=refusal)
        self._check_batches(task)
        paid = task.cost(self.site.declared_sizes[task.client]) if self.site.ledgers else None
        name = (
            self._release_name(task, vector, correction) if paid or task.clients.shared_by else ""
        )
        if paid and task.noise_shares:
            name = self._not_sent_before(task, name)
        randomness = self._randomness(task.client, name, paid is not None)
        if paid is None:
            return self._reply(task, vector, randomness, correction)
        try:
            flush = self._debit(task, name, *paid)
        except BudgetRefusal as refusal:
            return ClientReply(task.client, refused=str(refusal))
        writing = self._clerk.submit(flush)
        try:
            reply = self._reply(task, vector, randomness, correction)
        finally:
            self._await(writing)
        writing.result()
        return reply

    def _refusal(self, task: ClientTask) -> str:
        """The owner's word, where it keeps a ledger and has something to hide."""
        if self.site.ledgers is None or task.client in self.site.public:
            return ""
        if task.only_raw_values and gaussian(0.0) not in self.ledger(task.client).spending():
            return "Its ledger holds no release without a guarantee, which raw values are."
        return self.site.policy.refusal(task)

    def _check_batches(self, task: ClientTask) -> None:
        """A batch must not be too large to be summed within the clip's margin. That is judged by
        the declared size, before anything is drawn: whether a batch was too large would tell how
        many units there are."""
        if task.samples is None:
            return
        site, most = (
            self.site,
            largest_draw(task.samples.sampling, self.site.declared_sizes[task.client]),
        )
        if most > most_units(1 / COVER, MANY_ADDITIONS):
            limit = self._clipped(task.samples).largest_batch(
                site.x[:0], site.y[:0], site.unit_ids is not None
            )
            if most > limit:
                raise DpflError(
                    f"By the declared size, a batch may have {most:.0f} units, of which "
                    f"{limit:.0f} can be summed within the "
                    "margin of the clip; lower the rate q."
                )

    def _await(self, writing: Future[None]) -> None:
        """What of the flush training did not cover."""
        writing.exception()

    def _reply(
        self, task: ClientTask, vector: Tensor, randomness: Randomness, correction: Tensor | None
    ) -> ClientReply:
        if task.norms:
            return ClientReply(task.client, raw={"norms": self._norms(task, vector)})
        if task.query:
            asked, rng, room = (
                self._questioned(task, vector),
                _keyed(randomness, task, "survey"),
                task.secure_sum,
            )
            with drawing_from(_keyed(randomness, task, "survey module")):
                if task.noise_shares and room and isinstance(task.query, Mean):
                    numbers = shared_answer(
                        task.query, task.noise_shares, asked, room.bound, room.clients, rng
                    )
                    return ClientReply(task.client, numbers=numbers)
                return ClientReply(task.client, raw={"answer": task.query.ask(asked, rng)})
        if task.only_raw_values and correction is not None:
            return ClientReply(
                task.client, raw=self._differences(task, vector, correction, randomness)
            )
        try:
            if task.summed_release:
                return ClientReply(
                    task.client,
                    numbers=self._numbers(task, task.summed_release, vector, randomness),
                )
            update, inside = self._train(task, vector, randomness, correction)
            return ClientReply(
                task.client, update, inside, raw=self._said(task, vector, randomness)
            )
        except NonFinite as error:
            return ClientReply(task.client, failed=str(error), diverged=True)

    def _train(
        self, task: ClientTask, vector: Tensor, randomness: Randomness, correction: Tensor | None
    ) -> tuple[Tensor, bool]:
        data = self._held(task.client)
        generator = partial(_keyed, randomness, task)
        added, last = (None, correction) if task.local.objective.needs_last else (correction, None)
        drift = Drift(vector[: self.model.layout.trainable], task.local.prox, added)
        with self._training(vector, generator):
            try:
                self._descend(task, data, generator, drift, last)
            except NonFinite:
                if not task.placement.covers_update:
                    raise
                self.model.load(vector)
        return self._upload(task, vector, generator, added)

    def _numbers(
        self, task: ClientTask, release: Release, vector: Tensor, randomness: Randomness
    ) -> np.ndarray:
        """Its part of a secure sum: the clipped sum of one batch, or its clipped update, with its
        share of the noise.

        Where clients are drawn, each draws for itself: who is not sends its noise alone, and nobody
        can tell; where answers are timed, it trains as well.
        """
        assert task.secure_sum is not None
        generator, layout = partial(_keyed, randomness, task), self.model.layout
        if release is task.samples:
            with self._training(vector, generator):
                sent = release.into_sum(
                    clipped_batch(
                        self._clipped(release), self._held(task.client), release, generator
                    )
                )
        else:
            drawn = (
                generator("drawn").random()
                < release.sampling.expected_size(task.secure_sum.clients) / task.secure_sum.clients
            )
            trained = (
                self._train(task, vector, randomness, None) if drawn or self.site.timed else None
            )
            sent = (
                release.into_sum(*trained)
                if drawn and trained
                else release.into_sum(torch.zeros(layout.size))
            )
        whole = release.integer_sum(task.secure_sum.bound, task.secure_sum.clients)
        weighted = (
            sent.double().numpy() * task.secure_sum.weight
        )  # in float32 two sums could be rounded apart
        return whole.numbers(weighted, generator("share of the noise"))

    @contextmanager
    def _training(self, vector: Tensor, generator: Generator) -> Iterator[None]:
        """The module with these weights, in training, and with randomness of its own."""
        self.model.load(vector)
        self.model.module.train()
        with drawing_from(generator("module")):
            yield

    def _descend(
        self,
        task: ClientTask,
        data: ClientDataset,
        generator: Generator,
        drift: Drift,
        last: Tensor | None,
    ) -> None:
        self._before = None
        if task.samples:
            size, watch = (
                self.site.declared_sizes[task.client],
                self._watch if task.raw and LAST_STEP in task.raw_values else None,
            )
            private_steps(
                self._clipped(task.samples),
                data,
                size,
                task.steps,
                task.local,
                task.samples,
                generator,
                drift,
                watch,
            )
        else:
            plain_steps(self.model, data.as_rows, task.steps, task.local, generator, drift, last)

    def _upload(
        self, task: ClientTask, vector: Tensor, generator: Generator, added: Tensor | None
    ) -> tuple[Tensor, bool]:
        """The clipped update with its noise, or with this client's share of the noise of the sum,
        if any.

        A client that noise hides sends no update where its steps leave all bounds: that they did is
        not for the server.
        """
        if (
            task.placement.covers_update
            and not torch.isfinite(torch.sub(self.model.vector, vector, out=self._room)).all()
        ):
            self.model.load(vector)
        update, inside = self._clipped_update(
            task.update.clip if task.update else task.clients.clip, vector
        )
        if task.update:
            longer = 1 + rounding_sensitivity(task, vector, added) / task.update.sensitivity_bound
            noisy = task.update.add_noise(update, generator("upload noise"), largest_weight=longer)
            return noisy, True  # whether it was clipped is not for the server
        if task.clients.shared_by:
            update = task.clients.add_noise(
                update, generator("client noise"), share=1 / task.clients.shared_by
            )
        return update, inside

    def _clipped_update(self, clip: Clip, vector: Tensor) -> tuple[Tensor, bool]:
        """The clipped difference, or the difference to the clipped model."""
        layout = self.model.layout
        ends = (*layout.offsets, layout.size)
        if clip.bounds == "model":
            clipped, inside = clip_vector(
                self.model.vector, clip, layout.names, ends, out=self._room
            )
            return clipped.sub_(vector), inside
        update = torch.sub(self.model.vector, vector, out=self._room)
        return (
            (update, True)
            if clip.bounds == "nothing"
            else clip_vector(update, clip, layout.names, ends, out=update)
        )

    def _questioned(self, task: ClientTask, vector: Tensor) -> QueryData:
        self.model.load(vector)
        if task.asks_metric:
            refuse_mixing(self.model, self.site.x[:0])
        held = self._asked_of(task)
        return QueryData(
            self._held(held), self.site.task.classes, self.site.declared_sizes[held], self._counted
        )

    def _asked_of(self, task: ClientTask) -> int:
        """Which rows a task is about: a client's own, or those that it keeps out of training."""
        return (
            task.client + self.site.held_out
            if task.asks_metric and self.site.held_out is not None
            else task.client
        )

    def _counted(self, x: Tensor, y: Tensor, most: float) -> Tensor:
        """In chunks in which a sample counts with the same numbers in every batch."""

        def compute(x: Tensor, y: Tensor, rows: UnitRows | None = None) -> tuple[Tensor, Tensor]:
            with evaluating(self.model.module):
                scores = self.model.module(self.model.arrange(x))
                return scores, count_outcomes(self.site.task, scores, y, most)

        test = SelfTest(self.model, compute, f"metric {most}", x[:1], y[:1])
        sizes = InvariantSizes(ROWS, test.reference)
        return torch.cat(
            [compute(chunk[0], chunk[1])[1][:count] for chunk, count in padded_chunks(sizes, x, y)]
        )

    def _norms(self, task: ClientTask, vector: Tensor) -> np.ndarray:
        """Of the gradients of public samples, as they are."""
        if task.client not in self.site.public or task.samples is None:
            raise DpflError(
                "The norms of gradients are asked of clients whose data is public, and of nobody "
                "else."
            )
        self.model.load(vector)
        data = self._held(task.client).as_rows
        return gradient_norms(
            self._clipped(task.samples), task.samples.clip, *data.take(torch.arange(len(data)))
        ).numpy()

    def _said(
        self, task: ClientTask, vector: Tensor, randomness: Randomness
    ) -> dict[str, np.ndarray] | None:
        if task.raw:
            found = (
                self._differences(task, vector, self.model.read(), randomness)
                if DIFFERENCES in task.raw_values
                else {}
            )
            return found | (self._last_step(task) if LAST_STEP in task.raw_values else {})
        return {"slope": np.array(self._slope(task, vector, randomness))} if task.slope else None

    def _slope(self, task: ClientTask, vector: Tensor, randomness: Randomness) -> float:
        """|sum clip(g(x_i)) - clip(g(x))| over one more batch, with noise: a unit moves it by twice
        its clip at most.
        """
        assert task.samples is not None
        data, release = self._held(task.client), task.samples.for_slopes
        batch = data.units(
            torch.from_numpy(
                release.sampling.draw(len(data), _keyed(randomness, task, "slope batch"))
            )
        )
        gradients, trained = self._clipped(release), self.model.read()
        with drawing_from(_keyed(randomness, task, "slope module")):
            after = clipped_sum(gradients, release.clip, *batch).clone()
            self.model.load(vector)
            before = clipped_sum(gradients, release.clip, *batch)
        self.model.load(trained)
        rng = _keyed(randomness, task, "slope noise")
        return release.add_noise_to_number(float((after - before).norm()), rng, largest_weight=2.0)

    def _differences(
        self, task: ClientTask, vector: Tensor, own: Tensor, randomness: Randomness
    ) -> dict[str, np.ndarray]:
        """What ALI and ALS send as published: from one model to the client's own, on one batch; no
        noise covers it.
        """
        assert task.samples is not None
        data, trained = self._held(task.client).as_rows, self.model.read()
        drawn = task.samples.sampling.draw(len(data), _keyed(randomness, task, "raw batch"))
        batch = data.take(torch.from_numpy(drawn if len(drawn) else np.arange(len(data))))
        self.model.load(own)
        after, loss_after = plain_gradient(self.model, *batch)
        self.model.load(vector)
        before, loss_before = plain_gradient(self.model, *batch)
        self.model.load(trained)
        return {
            "losses": np.array(loss_after - loss_before),
            "gradients": np.array(float((after - before).norm())),
            "distance": np.array(float((own - vector).norm())),
            "gradient": before.numpy(),
        }

    def _watch(self, batch: np.ndarray) -> None:
        self._before = self.model.read(), batch

    def _last_step(self, task: ClientTask) -> dict[str, np.ndarray]:
        """What the code of ALI sends: how far the last step went, and how the loss of its own batch
        changed by it.
        """
        if self._before is None:  # every batch was empty
            return {"last_step": np.array(0.0), "last_losses": np.array(0.0)}
        (start, drawn), end = self._before, self.model.read()
        batch = self._held(task.client).as_rows.take(torch.from_numpy(drawn))
        after = self._loss(*batch)
        self.model.load(start)
        before = self._loss(*batch)
        self.model.load(end)
        return {
            "last_step": np.array(float((end - start).norm())),
            "last_losses": np.array(after - before),
        }

    def _loss(self, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            return float(mean_loss(self.model, x, y)) if len(x) else 0.0

    def _held(self, client: int) -> ClientDataset:
        """Of a client, in rows or, where the site says whose they are, in persons."""
        site = self.site
        if site.unit_ids is not None and client not in self._persons:
            self._persons[client] = UnitGroups.of(
                site.clients[client], site.unit_ids, site.rows_per_person
            )
        return ClientDataset(site.x, site.y, site.clients[client], self._persons.get(client))

    def _clipped(self, release: Release) -> ClippedGradients:
        layout = self.model.layout
        names = [
            name
            for name, offset in zip(layout.names, layout.offsets, strict=True)
            if offset < layout.trainable
        ]
        groups = release.clip.groups(names)
        if groups not in self._gradients:
            self._gradients[groups] = ClippedGradients(
                self.model, groups, arithmetic=self.site.arithmetic
            )
        return self._gradients[groups]

    def _randomness(self, client: int, name: str, debits: bool) -> Randomness:
        """The released value's own, so that nothing else ever has the same noise."""
        randomness = self.site.randomness
        if debits and isinstance(randomness, Keyed):
            if client not in self._epochs:
                self._epochs[client] = self.ledger(client).epoch(self.site.run)
            randomness = Keyed(randomness.seed, self._epochs[client])
        return with_scope(randomness, name) if name else randomness

    def _debit(self, task: ClientTask, name: str, event: Event, count: int) -> Callable[[], None]:
        """The owner's consent; what is returned writes it to the disk."""
        fresh = "" if self.site.randomness.repeatable else secrets.token_hex(16)
        entry, ledgers = self._entry(task, f"{name}{fresh}"), self.site.ledgers
        assert ledgers is not None
        ledger = self.ledger(task.client)
        return ledger.begin(
            self.site.run, entry, event, count, ledgers.limit, task.horizon, ledgers.shares
        )

    def _entry(self, task: ClientTask, name: str) -> str:
        """What the ledger knows a release by; of a share of the noise it says with how many others
        it is enough.
        """
        return "/".join(
            (self.site.run, task.noise_shares.mark, name)
            if task.noise_shares
            else (self.site.run, name)
        )

    def _release_name(self, task: ClientTask, vector: Tensor, correction: Tensor | None) -> str:
        """The same model, weights, data and task give the same value; anything else has another
        name, and other noise.
        """
        asked = replace(task, horizon=0, raw_values=())
        value = (
            asked,
            self._model_digest(vector),
            self.site.fingerprint,
            self._data_digest(self._asked_of(task)),
        )
        return digest_of(
            value, *([] if correction is None else [correction.contiguous().numpy().data])
        )

    def _not_sent_before(self, task: ClientTask, name: str) -> str:
        """Numbers for a secure sum that are made again have new noise and are paid for again: once
        they are in two sums over different clients, the difference shows whoever is in one of them
        with a share of the noise only."""
        ledger, again = self.ledger(task.client), 0
        while ledger.has_release(self._entry(task, f"{name}{f'/{again}' * bool(again)}")):
            again += 1
        return f"{name}/{again}" if again else name

    def _model_digest(self, vector: Tensor) -> str:
        """Of the model that came, whatever is said of it; to compare its bits with the last's costs
        a seventh of a digest.
        """
        bits = vector.contiguous().view(torch.int32)
        if self._digested is None or not torch.equal(bits, self._digested[0]):
            self._digested = (
                bits.clone(),
                hashlib.blake2b(bits.numpy().data, digest_size=16).hexdigest(),
            )
        return self._digested[1]

    def _data_digest(self, client: int) -> str:
        if client not in self._digests:
            digest = hashlib.sha256()
            for tensor in (self.site.x, self.site.y):
                for rows in self.site.clients[client].split(DIGESTED):
                    digest.update(tensor[rows].contiguous().numpy().data)
            if (persons := self._held(client).persons) is not None:
                digest.update(
                    b" persons " + persons.rows.numpy().tobytes() + persons.sizes.numpy().tobytes()
                )
            self._digests[client] = digest.hexdigest()
        return self._digests[client]

    def ledger(self, client: int) -> Ledger:
        if client not in self._ledgers:
            if len(self._ledgers) >= OPEN_LEDGERS:
                self._ledgers.pop(next(iter(self._ledgers))).close()
            assert self.site.ledgers is not None
            self._ledgers[client] = self.site.ledgers.open(client)
        return self._ledgers[client]

    @property
    def arithmetic(self) -> str:
        """How the units of private steps were computed so far, in words for the statement."""
        return next(
            (gradients.path for gradients in self._gradients.values() if gradients.path), ""
        )

    def close(self) -> None:
        self._clerk.shutdown()
        for ledger in self._ledgers.values():
            ledger.close()


def _keyed(randomness: Randomness, task: ClientTask, purpose: str) -> np.random.Generator:
    return randomness.generator(purpose, task.round, task.client)
