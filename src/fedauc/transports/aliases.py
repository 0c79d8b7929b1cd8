"""Whose memory the value of a recorded operation is in, and what it writes into, as its schema says."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

UNSAID = torch.ops.aten._unsafe_view.default
"""A view whose schema does not say so."""


def aliases(node: Node) -> tuple[Node | None, list[Node]]:
    """The argument whose memory the value is in, and those that are written into."""
    if node.target is operator.getitem:
        whole: Any = node.args[0]
        return (whole if aliases(whole)[0] is not None else None), []
    if node.target is UNSAID:
        return node.all_input_nodes[0], []
    if not isinstance(node.target, OpOverload):
        return None, []
    shared: Node | None = None
    places: list[Node] = []
    for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
        if argument.alias_info is not None:
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, Node):
                    shared = shared or each
                    places += [each] if argument.alias_info.is_write else []
    return shared, places


def base(node: Node) -> Node:
    """What this is a view of; itself, if of nothing."""
    while (source := aliases(node)[0]) is not None:
        node = source
    return node
