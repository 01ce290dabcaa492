"""A data owner's node: the service that decides what is computed on its data, and what leaves it.

Read the modules in this order:

1. `policy.py` and `policy_sections.py`: what the owner allows.
2. `service.py`: one message in, one signed message out.
3. `checks/policy_checker.py`, and beside it `run_checks.py`, `task_checks.py` and
   `budget_checks.py`: what is refused before anything is debited.
4. `task_execution.py` and `storage/task_log.py`: how a task is executed once, whatever crashes.
5. `checks/proposed_model.py`, `build_runner.py`, `load_data.py`: the model and the data that a task
   is executed on. The training, clipping and noise themselves are in `dpfl.client` and
   `dpfl.privacy`.
6. `history/`: `ledger_history.py`, `rollback.py`, `witness.py`, `reconciliation.py`: how the node
   finds out that its disk was set back, and what its owner does then.
7. `statement.py`: the signed statement of what the node has spent.

A node imports nothing of the server, of the engines or of any transport.
"""
