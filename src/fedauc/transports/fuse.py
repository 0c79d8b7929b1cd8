"""Put a step's update into the multiplication that makes the gradient.

A recorded step ends with  W ← W + s·g  for every parameter, and the g of a matrix is a product A·B over the
batch. Written apart, g goes to memory and comes back, and so does W: four passes over what is ten times as
much, for ten clients, as one model would be. As  W ← W + (s·A)·B  it is one pass, in place, by the matrix
product itself.

    copy_(W, addcmul(W, A·B, s))   →   W.baddbmm_(s·A, B)
    copy_(W, addcmul(W, g, s))     →   W.addcmul_(g, s)       where g is anything else
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from fedauc.transports.aliases import base

aten = torch.ops.aten
PRODUCTS: dict[Any, Any] = {
    aten.bmm.default: aten.baddbmm_.default,
    aten.mm.default: aten.addmm_.default,
}
SAME: set[Any] = {aten.view.default, aten._unsafe_view.default, aten.expand.default}
"""Views that may change nothing."""


def fused(graph: GraphModule, least: int = 0) -> GraphModule:
    """The graph with its updates in place; those of smaller matrices than `least` are no product's affair."""
    nodes = graph.graph
    written = {node.args[0] for node in nodes.nodes if node.target is aten.copy_.default}
    for node in list(nodes.nodes):
        if node.target is not aten.copy_.default or not _is_update(*node.args):
            continue
        place, update = node.args
        _, gradient, scale = update.args
        large = _shape(scale) == () and math.prod(_shape(place)) >= least
        product = _product(gradient) if large else None
        read = [gradient] if product is None else product[0].args
        if any(base(each) in written for each in read):  # it may have been written over by then
            continue
        with nodes.inserting_before(node):
            if product is None:
                nodes.call_function(aten.addcmul_.default, (place, gradient, scale))
            else:
                _multiplied(nodes, place, *product, scale)
        nodes.erase_node(node)
        nodes.erase_node(update)
    nodes.eliminate_dead_code()
    graph.recompile()
    return graph


def _is_update(place: Any, node: Any) -> bool:
    """Whether this is addcmul(place, ·, ·) that nothing else needs."""
    if not isinstance(node, Node) or node.target is not aten.addcmul.default:
        return False
    return node.args[0] is place and not node.kwargs and len(node.users) == 1


def _product(node: Any) -> tuple[Any, bool] | None:
    """The product of matrices that this is, or is the transpose of."""
    transposed = False
    while isinstance(node, Node) and len(node.users) == 1:
        if node.target in PRODUCTS:
            return node, transposed
        source: Any = node.args[0] if node.args else None
        if node.target is aten.transpose.int:
            last = len(_shape(node))
            if {int(d) % last for d in node.args[1:]} != {last - 2, last - 1}:  # type: ignore[arg-type]
                return None
            transposed = not transposed
        elif node.target not in SAME or _shape(source) != _shape(node):
            return None
        node = source
    return None


def _multiplied(graph: Graph, place: Any, product: Any, transposed: bool, scale: Any) -> None:
    """place ← place + scale · product, the smaller factor being scaled."""
    left, right = product.args
    if transposed:
        rows = len(_shape(place)) - 2
        place = graph.call_function(aten.transpose.int, (place, rows, rows + 1))
    small = min((left, right), key=lambda factor: math.prod(_shape(factor)))
    scaled = graph.call_function(aten.mul.Tensor, (small, scale))
    factors = (scaled, right) if small is left else (left, scaled)
    graph.call_function(PRODUCTS[product.target], (place, *factors))


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def parted(graph: GraphModule) -> tuple[GraphModule, list[tuple[int, Any, bool]]]:
    """A fused graph without its in-place products, and those: a compiler would take them apart again.

    Their factors become further outputs of the graph; (state's number, operation, transposed) says what is
    to be done with them.
    """
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    output: Any = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    updates: list[tuple[int, Any, bool]] = []
    factors: list[Any] = []
    for node in list(graph.graph.nodes):
        if node.target not in PRODUCTS.values():
            continue
        place: Any
        place, left, right = node.args
        transposed = place.op != "placeholder"
        updates.append((inputs.index(place.args[0] if transposed else place), node.target, transposed))
        factors += [left, right]
        graph.graph.erase_node(node)
    output.args = ([*output.args[0], *factors],)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, updates


def together(fn: Callable[..., Any], updates: list[tuple[int, Any, bool]]) -> Callable[..., list[Tensor]]:
    """The inverse of `parted`, for what the compiler made of the graph."""
    if not updates:
        return fn

    def run(*flat: Tensor) -> list[Tensor]:
        values = list(fn(*flat))
        factors = values[len(values) - 2 * len(updates) :]
        for (number, product, transposed), left, right in zip(
            updates, factors[::2], factors[1::2], strict=True
        ):
            place = flat[number]
            product(place.mT if transposed else place, left, right)
        return values[: len(values) - 2 * len(updates)]

    return run
