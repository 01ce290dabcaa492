"""Engines decide where clients run: in this process, in worker processes, or at remote nodes.

Every engine has the same interface. It takes a `RoundRequest` (the round's model and one
`ClientTask` per sampled client) and returns one `ClientReply` per task, in the order of the tasks:

    engine = local_engine(context, size=layout.size, workers=4)
    replies = engine.run(request)
    engine.close()

- `SerialEngine` (`serial.py`) trains the clients one after another in this process.
- `PoolEngine` (`pool.py`) trains them in worker processes that share the data and the model.
- `RemoteEngine` (`remote.py`) sends each task to the node that owns the data, as a signed message.

An engine does not choose clients, weigh replies, sum updates or add noise. It only moves tasks and
replies. With keyed randomness, a run therefore computes the same model, bit for bit, on every
engine and with any number of workers: clients train on one thread, their randomness is keyed by
what they do and not by where, and the server sums updates in the order of the tasks. In a secure
sum over nodes, the engine also drives the exchange of masks: the coordinator gets
`RemoteEngine.add` as its way to add up numbers.

A client that fails costs its own reply and not the round: its `ClientReply` has no update, and says
in `refusal` or `failure` why. An engine raises `DpflError` only where the round cannot go on.
"""

from typing import Protocol

from dpfl.client.context import ClientContext
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.deprecation import renamed_keywords
from dpfl.engines.pool import PoolEngine
from dpfl.engines.serial import SerialEngine, one_thread
from dpfl.errors import DpflError

__all__ = ["Engine", "PoolEngine", "SerialEngine", "local_engine", "one_thread"]


class Engine(Protocol):
    """The interface of every engine."""

    def run(self, request: RoundRequest) -> list[ClientReply]:
        """Executes one round.

        Args:
            request: The tasks of the round and the model that they start from.

        Returns:
            One reply per task, in the order of the tasks. The updates in them are valid until the
            next call, which reuses their memory.

        Raises:
            DpflError: The round cannot go on, for example because too few nodes answered.
        """

    def close(self) -> None:
        """Ends worker processes and closes ledgers and connections."""


@renamed_keywords(site="context")
def local_engine(context: ClientContext, size: int, workers: int = 1) -> Engine:
    """Creates an engine on this machine.

    Args:
        context: The clients' data, model and ledgers.
        size: How many numbers the model's vector has.
        workers: Worker processes; with 1 the clients run in this process. The result does not
            depend on it.

    Returns:
        A `SerialEngine` or a `PoolEngine`.

    Raises:
        DpflError: `workers` is below 1.
    """
    if workers < 1:
        raise DpflError(f"engine.workers must be at least 1, not {workers}.")
    return SerialEngine(context) if workers == 1 else PoolEngine(context, size, workers)
