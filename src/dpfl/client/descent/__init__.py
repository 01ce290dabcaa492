"""How a client's model moves: objectives, optimisers, and the steps of local training with and
without noise.
"""
