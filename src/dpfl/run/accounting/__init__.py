"""What a run spends: the terms of its accounts, what its ledgers held before, what they hold and
allow, and the running total of epsilon.
"""
