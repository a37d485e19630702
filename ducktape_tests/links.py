"""Which tests change the links between racks, by their source: such links are those of a lab, and not of other hosts.

A test changes links if a fault that it, or what it calls, injects may be one of links. A kind that can't be read from
the source, since it is drawn or listed, may be any.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

OF_LINKS = frozenset({"cut", "slow"})
# of a drill: injects a fault of a kind
FAULT = "fault"
# of a cluster: what those faults do, see pyhooks.cluster.running
DIRECT = frozenset({"cut", "unplug", "slow", "slow_node"})
CLUSTER = "kafka"


@dataclass(frozen=True)
class Source:
    """A class, or a base of one, as it is written.

    Attributes:
        methods: all that it defines.
        constants: words that its module gives names to.
    """

    methods: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, str]


@dataclass(frozen=True)
class _Call:
    """A method as it is called.

    Attributes:
        method: which.
        words: what its parameters are, as far as they are words that can be read.
    """

    method: str
    words: tuple[tuple[str, str], ...] = ()


def constants(tree: ast.Module) -> dict[str, str]:
    """The words that a module gives names to."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
    return found


def changes_links(test: str, line: Sequence[Source]) -> bool:
    """Whether a test may change links.

    Args:
        test: name of its method.
        line: its class, then what that derives from, nearest first, without the drill itself.
    """
    waiting, seen = [_Call(test)], set[_Call]()
    while waiting:
        call = waiting.pop()
        if call in seen:
            continue
        seen.add(call)
        # all of the line, since one that is overridden may still be called
        for source in line:
            method = source.methods.get(call.method)
            if method is None:
                continue
            known = {**source.constants, **dict(call.words)}
            for name in _parameters(method):
                if name not in dict(call.words):
                    known.pop(name, None)
            if any(_of_links(node, known) for node in ast.walk(method)):
                return True
            waiting += _called(method, known, line)
    return False


def _of_links(node: ast.AST, known: Mapping[str, str]) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == FAULT:
        given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "kind")]
        kind = _word(given[0], known) if given else None
        return kind is None or kind in OF_LINKS
    of = node.func.value
    return node.func.attr in DIRECT and isinstance(of, ast.Attribute) and of.attr == CLUSTER


def _called(method: ast.FunctionDef, known: Mapping[str, str], line: Sequence[Source]) -> Iterator[_Call]:
    """The methods that one calls, or hands on to be called."""
    calls = [node for node in ast.walk(method) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    for node in calls:
        assert isinstance(node.func, ast.Attribute)
        for source in line:
            if (called := source.methods.get(node.func.attr)) is not None:
                yield _Call(node.func.attr, tuple(sorted(_given(node, called, known).items())))
    direct = {id(node.func) for node in calls}
    for other in ast.walk(method):
        if isinstance(other, ast.Attribute) and id(other) not in direct:
            yield _Call(other.attr)


def _given(node: ast.Call, method: ast.FunctionDef, known: Mapping[str, str]) -> dict[str, str]:
    pairs = [*zip(_parameters(method), node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
    words = {name: _word(value, known) for name, value in pairs if name is not None}
    return {name: word for name, word in words.items() if word is not None}


def _parameters(method: ast.FunctionDef) -> list[str]:
    """Names, without that of the object."""
    return [one.arg for one in [*method.args.posonlyargs, *method.args.args][1:] + method.args.kwonlyargs]


def _word(node: ast.expr, known: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return known.get(node.id) if isinstance(node, ast.Name) else None
