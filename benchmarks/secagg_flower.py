"""What one client computes in a round of Flower's SecAgg+, all four stages, by Flower's own
functions (flwr 1.41.0).

Keys are new in every round there. Random bytes of the same length take the place of the other
clients' shares, so that only one client has to compute. Numbers and weights are the defaults of
`SecAggPlusWorkflow`.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

mod = importlib.import_module(
    "flwr.client.mod.secure_aggregation.secaggplus_mod"
)  # its package has a function of that name
DEFAULTS = {
    Key.CLIPPING_RANGE: 8.0,
    Key.TARGET_RANGE: 1 << 22,
    Key.MOD_RANGE: 1 << 32,
    Key.MAX_WEIGHT: 1000.0,
}


def one_client(clients: int, size: int) -> float:
    """Returns the milliseconds of the processor for one client."""
    threshold = clients // 2 + 1
    sizes = {Key.SAMPLE_NUMBER: clients, Key.SHARE_NUMBER: clients, Key.THRESHOLD: threshold}
    states = {nid: mod.SecAggPlusState(nid=nid) for nid in range(1, clients + 1)}
    own, parameters = states[1], ndarrays_to_parameters([np.zeros(size, np.float32)])
    keys = {}
    for nid, state in states.items():
        if nid > 1:
            key_record = mod._setup(state, ConfigRecord({**sizes, **DEFAULTS}))
            keys[nid] = (key_record[Key.PUBLIC_KEY_1], key_record[Key.PUBLIC_KEY_2])
    start = time.process_time()
    key_record = mod._setup(own, ConfigRecord({**sizes, **DEFAULTS}))
    keys[1] = (key_record[Key.PUBLIC_KEY_1], key_record[Key.PUBLIC_KEY_2])
    mod._share_keys(own, ConfigRecord({str(nid): list(pair) for nid, pair in keys.items()}))
    setup_time = time.process_time() - start
    share_record = ConfigRecord(
        {Key.CIPHERTEXT_LIST: _shares(states, keys), Key.SOURCE_LIST: list(range(2, clients + 1))}
    )
    start = time.process_time()
    mod._collect_masked_vectors(own, share_record, 1, parameters)
    mod._unmask(
        own, ConfigRecord({Key.ACTIVE_NODE_ID_LIST: list(states), Key.DEAD_NODE_ID_LIST: []})
    )
    return 1e3 * (setup_time + time.process_time() - start)


def _shares(states: dict[int, Any], keys: dict[int, tuple[bytes, bytes]]) -> list[bytes]:
    """Returns what the others send to the first client: shares of their seeds and keys."""
    own = states[1]
    lengths = len(own.rd_seed_share_dict[1]), len(own.sk1_share_dict[1])
    ciphertexts = []
    for nid in range(2, len(states) + 1):
        key = generate_shared_key(
            bytes_to_private_key(states[nid].sk2), bytes_to_public_key(keys[1][1])
        )
        ciphertexts.append(
            encrypt(
                key,
                share_keys_plaintext_concat(nid, 1, *(os.urandom(length) for length in lengths)),
            )
        )
    return ciphertexts
