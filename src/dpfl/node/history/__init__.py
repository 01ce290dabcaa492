"""How a node finds out that its disk was set back: what it signed, logged and witnessed, held
against its ledger. `reconciliation.py` is what its owner does then.
"""
