"""The nodes that joined a run have all that a run asks of its nodes."""

from inspect import getmembers, isfunction, signature

from dpfl.run.over_nodes.node_pool import NodePool
from dpfl.run.over_nodes.nodes import JoinedNodes


def test_joined_nodes_have_every_method_of_a_pool() -> None:
    for name, method in getmembers(NodePool, isfunction):
        if not name.startswith("_"):
            assert signature(getattr(JoinedNodes, name)) == signature(method)
    assert isinstance(JoinedNodes.nonce, property)
