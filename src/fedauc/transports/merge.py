"""Make a recorded step fewer operations.

A step on a deep network ends with the same few operations for every one of its sixty or more parameters: the
model's step, the momentum, the estimate of an inner function. On a GPU each of them is a kernel that takes
longer to start than to run, and in a CUDA graph of all clients there are thousands of them. Here

    once        what is computed twice from the same values is computed once: the step size times a constant,
                say, which every parameter asks for
    together    operations of one kind that do not need one another are one operation on a list of tensors
                (`torch._foreach_…`), a single kernel

Operations that have a list wait until nothing else can be done. Then the kind is taken of which one is the
farthest from the end, and with it all others of that kind that can be done by then (Neubig, Goldberg & Dyer,
"On-the-fly operation batching in dynamic computation graphs", NeurIPS 2017). So a model's step is taken for
all parameters before the first layer needs its own, and what is made of their gradients when the last one is
known.

Writing into a tensor comes after all that read what was there before, and before all that read it afterwards;
both count as needing one another.
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node

from fedauc.transports.aliases import aliases

aten = torch.ops.aten
Edges = dict[Node, set[Node]]
LEAST = 4
"""So many operations make a list."""


class Lists(NamedTuple):
    """An operation on lists of tensors, by what the second operand of the one on tensors is."""

    tensors: Any
    number: Any = None
    scalar: Any = None
    """A tensor of no dimensions, the same for all."""


LISTS: Mapping[Any, Lists] = {
    aten.add.Tensor: Lists(aten._foreach_add.List),
    aten.sub.Tensor: Lists(aten._foreach_sub.List),
    aten.mul.Tensor: Lists(aten._foreach_mul.List, aten._foreach_mul.Scalar, aten._foreach_mul.Tensor),
    aten.copy_.default: Lists(aten._foreach_copy_.default),
}


def once(graph: GraphModule) -> GraphModule:
    """The graph with nothing computed twice."""
    order = _order(graph.graph)
    age = dict.fromkeys(graph.graph.nodes, 0)
    """How often what is in a node's memory has been written over so far."""
    fixed = age.keys() - {place for node in graph.graph.nodes for place in order.written[node]}
    known: dict[Hashable, Node] = {}
    for node in list(graph.graph.nodes):
        if _repeatable(node) and order.base[node] in fixed:
            ages = tuple(age[order.base[each]] for each in node.all_input_nodes)
            key = (node.target, _frozen(node.args), _frozen(node.kwargs), ages)
            if (first := known.setdefault(key, node)) is not node:
                node.replace_all_uses_with(first)
                graph.graph.erase_node(node)
        for place in order.written[node]:
            age[place] += 1
    graph.recompile()
    return graph


def together(graph: GraphModule) -> GraphModule:
    """The graph with lists of operations."""
    after = _order(graph.graph).after
    units = list(_agenda(graph.graph, after))
    previous = units[0][0]
    for node in itertools.chain.from_iterable(units):
        if node is not previous:
            previous.append(node)
            previous = node
    for several in units:
        if len(several) >= LEAST:
            _listed(graph.graph, several)
    graph.graph.lint()
    graph.recompile()
    return graph


class Order(NamedTuple):
    """What comes after what."""

    base: dict[Node, Node]
    """Whose memory a node's value is in."""
    written: dict[Node, list[Node]]
    """The bases that a node writes into."""
    after: Edges
    """The nodes that have to come after a node."""


def _order(graph: Graph) -> Order:
    base: dict[Node, Node] = {}
    written: dict[Node, list[Node]] = {}
    after: Edges = {node: set(node.users) for node in graph.nodes}
    readers: defaultdict[Node, list[Node]] = defaultdict(list)
    writer: dict[Node, Node] = {}
    for node in graph.nodes:
        source, places = aliases(node)
        base[node] = node if source is None else base[source]
        written[node] = [base[place] for place in places]
        for place in {base[each] for each in node.all_input_nodes}:
            if place in writer:
                after[writer[place]].add(node)
            if place in written[node]:
                for reader in readers.pop(place, []):
                    after[reader].add(node)
                writer[place] = node
            else:
                readers[place].append(node)
    return Order(base, written, after)


def _repeatable(node: Node) -> bool:
    """Whether it gives the same again, in memory of its own."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, OpOverload) or node.target._schema.is_mutable:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return False
    return isinstance(node.meta.get("val"), Tensor) and aliases(node)[0] is None


def _frozen(value: Any) -> Hashable:
    """Arguments to compare by; 1, 1.0 and True are three."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(each)) for name, each in sorted(value.items()))
    return value if isinstance(value, Node) else (type(value).__name__, str(value))


def _agenda(graph: Graph, after: Edges) -> Iterator[list[Node]]:
    """All nodes in an order in which they can be done; those that may be one list beside each other."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    *others, end = graph.nodes
    after = {node: after[node] or {end} for node in others} | {end: set()}
    far, waits = dict.fromkeys(place, 0), dict.fromkeys(place, 0)
    """Operations on the longest way to the end, and those before a node that are still to be done."""
    for node in reversed(graph.nodes):
        far[node] = max((far[later] + 1 for later in after[node]), default=0)
        for later in after[node]:
            waits[later] += 1
    plain: list[tuple[int, Node]] = []
    waiting: defaultdict[Hashable, list[Node]] = defaultdict(list)

    def free(node: Node) -> None:
        if (kind := _kind(node)) is None:
            heappush(plain, (place[node], node))
        else:
            waiting[kind].append(node)

    for node in graph.nodes:
        if waits[node] == 0:
            free(node)
    while plain or waiting:
        if plain:
            several = [heappop(plain)[1]]
        else:
            several = waiting.pop(max(waiting, key=lambda kind: max(far[node] for node in waiting[kind])))
        yield several
        for node in several:
            for later in after[node]:
                waits[later] -= 1
                if waits[later] == 0:
                    free(later)


def _kind(node: Node) -> Hashable | None:
    """What operations must have in common to be one on lists; None: there are no lists of it."""
    if node.target not in LISTS or len(node.args) != 2 or node.kwargs.keys() - {"alpha"}:
        return None
    first, second = _operands(node)
    lists = LISTS[node.target]
    if not _dense(first) or not _alike(first, node):
        return None
    about = (node.target, first.meta["val"].dtype, first.meta["val"].device, _frozen(node.kwargs))
    if not isinstance(second, Node):
        return (*about, _frozen(second)) if lists.number is not None else None
    if _alike(second, node):
        return about
    value = second.meta.get("val")
    single = isinstance(value, Tensor) and value.dim() == 0 and value.dtype == first.meta["val"].dtype
    return (*about, second) if single and lists.scalar is not None else None


def _operands(node: Node) -> tuple[Any, Any]:
    """The tensor that is like the result, and the other operand."""
    first, second = node.args
    swapped = node.target is aten.mul.Tensor and isinstance(second, Node) and not _alike(first, node)
    return (second, first) if swapped else (first, second)


def _alike(value: Any, node: Node) -> bool:
    a, b = (each.meta.get("val") if isinstance(each, Node) else None for each in (value, node))
    return (
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)
    )


def _dense(value: Any) -> bool:
    """Without gaps: only then one kernel can do the list."""
    tensor = value.meta["val"] if isinstance(value, Node) else None
    return (
        isinstance(tensor, Tensor)
        and tensor.dim() > 0
        and torch.ops.aten.is_non_overlapping_and_dense(tensor)
    )


def _listed(graph: Graph, several: Sequence[Node]) -> None:
    """One operation in the place of several that stand beside each other."""
    lists = LISTS[several[0].target]
    firsts, seconds = zip(*map(_operands, several), strict=True)
    second: Any
    if not isinstance(seconds[0], Node):
        target, second = lists.number, seconds[0]
    elif _alike(seconds[0], several[0]):
        target, second = lists.tensors, list(seconds)
    else:
        target, second = lists.scalar, seconds[0]
    with graph.inserting_before(several[0]):
        whole = graph.call_function(target, (list(firsts), second), dict(several[0].kwargs))
        for i, node in enumerate(several):
            if node.target is aten.copy_.default:
                node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            else:
                value = graph.call_function(operator.getitem, (whole, i))
                value.meta = dict(node.meta)
                node.replace_all_uses_with(value)
    for node in several:
        graph.erase_node(node)
