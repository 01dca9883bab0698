"""What a mutant may change: the operators of cosmic-ray, some of our own, and the text that all of them leave alone."""

import ast
import contextlib
import functools
from collections.abc import Iterator
from typing import NamedTuple

import cosmic_ray.ast
import cosmic_ray.plugins
import parso
from cosmic_ray.operators.operator import Operator

# Of cosmic-ray. An operator is replaced by its neighbours only: a multiplication in place of every other operation is
# too easy to catch.
THEIRS = (
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Mul_Add", "Div_Mul", "FloorDiv_Mul", "FloorDiv_Add")
    ),
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in ("Mod_FloorDiv", "Pow_Mul", "BitAnd_BitOr", "BitOr_BitAnd", "LShift_RShift")
    ),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "GtE_Lt", "Eq_NotEq", "NotEq_Eq")
    ),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Is_IsNot", "IsNot_Is")),
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("Not", "USub", "Invert")),
    *(
        "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot",
        "NumberReplacer"
    ),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "RemoveDecorator", "ZeroIterationForLoop"),
)  # fmt: skip
# What no test can see: checks of the programmer, and the encoding that is the default.
UNSEEN_KEYWORDS = {"strict", "encoding", "frozen"}
COMMUTATIVE = {"min", "max", "minimum", "maximum", "logical_and", "logical_or", "add", "multiply", "equal", "not_equal"}
CONVERSIONS = {"list", "tuple", "iter", "int", "float", "str", "len", "dict", "type", "super", "print", "repr"}
NAMES = {
    **{"min": "max", "any": "all", "maximum": "minimum", "argmax": "argmin", "floor": "ceil", "zeros": "ones",
       "first": "last"},
    **{"reduce_max": "reduce_min", "reduce_sum": "reduce_mean", "logical_and": "logical_or",
       "reduce_any": "reduce_all"},
}  # fmt: skip
NAMES |= {new: old for old, new in NAMES.items()}


class Mutant(NamedTuple):
    """A place and what is put there.

    Attributes:
        operator: its name; one of `THEIRS` or `OURS`.
        occurrence: which of the places of this operator in the file.
        line: counted from 1.
    """

    operator: str
    occurrence: int
    line: int


def _like(node, text: str):
    """Code in place of a node, after the same space."""
    return parso.parse(node.get_first_leaf().prefix + text)


def _code(node) -> str:
    return node.get_code(include_prefix=False)


def _is_call(node) -> bool:
    return (
        node.type in ("atom_expr", "power")
        and node.children[-1].type == "trailer"
        and node.children[-1].children[0] == "("
    )


def _arguments(node) -> list:
    """Those of a call or a class, without commas, of the node that holds them."""
    if node.type == "arglist":
        return node.children[::2]
    if (
        node.type == "trailer"
        and node.children[0] == "("
        and len(node.children) == 3
        and node.children[1].type != "arglist"
    ):
        return [node.children[1]]
    return []


def _is_keyword(node) -> bool:
    return node.type == "argument" and node.children[1] == "="


class _Own(Operator):
    """An operator that replaces some neighbouring children of a node by code."""

    def changes(self, node) -> Iterator[tuple]:
        """(the node that marks the place, the first child, one past the last child, the code in their place), for each
        mutant of a node.
        """
        raise NotImplementedError

    def mutation_positions(self, node):
        return [(marker.start_pos, marker.end_pos) for marker, *_ in self.changes(node)]

    def mutate(self, node, index):
        _, first, last, text = list(self.changes(node))[index]
        node.children[first:last] = [_like(node.children[first], text)]
        return node

    @classmethod
    def examples(cls):
        return ()


class DeleteStatement(_Own):
    """A call, an assignment to a part of something, a check or an early return is left out."""

    def changes(self, node):
        if node.type != "simple_stmt":
            return
        first = node.children[0]
        early = (
            first.type == "return_stmt"
            and node.parent.type == "suite"
            and node.parent.parent.type in ("if_stmt", "for_stmt", "with_stmt")
        )
        part = first.type == "expr_stmt" and (
            first.children[0].type in ("atom_expr", "power")
            or (first.children[1].type == "operator" and first.children[1] != "=")
        )
        if _is_call(first) or early or part or first.type in ("raise_stmt", "del_stmt"):
            yield first, 0, 1, "pass"


class RemoveKeyword(_Own):
    """A keyword argument is left out."""

    def changes(self, node):
        for argument in _arguments(node):
            if _is_keyword(argument) and not _left_alone(argument):
                if node.type == "trailer":
                    yield argument, 1, 2, ""
                else:
                    place = node.children.index(argument)
                    yield argument, place, place + 2, ""  # With the comma after it.


class SwapArguments(_Own):
    """Two neighbouring positional arguments change places."""

    def changes(self, node):
        arguments = _arguments(node)
        if not arguments or _code(node.get_first_leaf().get_previous_leaf().get_previous_leaf()) in COMMUTATIVE:
            return
        for one, two in zip(arguments, arguments[1:], strict=False):
            if one.type != "argument" and two.type != "argument" and _code(one) != _code(two):
                place = node.children.index(one)
                yield one, place, place + 3, f"{_code(two)}, {_code(one)}"


class Unwrap(_Own):
    """`f(x)` becomes `x`, and `x.f()` too."""

    def changes(self, node):
        if not _is_call(node) or node.parent.type == "simple_stmt":  # A statement is deleted instead.
            return
        held = node.children[-1].children[1:-1]
        if (
            len(held) == 1
            and held[0].type not in ("arglist", "argument")
            and _code(node.children[0]) not in CONVERSIONS
        ):
            yield node, 0, len(node.children), f"({_code(held[0])})"
        elif not held and _code(node.children[-2]) in (".strip", ".lower", ".upper", ".copy", ".resolve", ".reverse"):
            yield node, 0, len(node.children), "".join(_code(child) for child in node.children[:-2])


class SwapNames(_Own):
    """A function becomes its opposite."""

    def changes(self, node):
        for index, child in enumerate(getattr(node, "children", ())):
            if (
                child.type == "name"
                and child.value in NAMES
                and node.type in ("atom_expr", "power", "trailer", "arglist")
            ):
                yield child, index, index + 1, NAMES[child.value]


class DropOperand(_Own):
    """One side of `and` and `or` is left out."""

    def changes(self, node):
        if node.type in ("and_test", "or_test"):
            for index in range(0, len(node.children), 2):
                if index:
                    yield node.children[index], index - 1, index + 1, ""
                else:
                    yield node.children[0], 0, 2, ""


class FixCondition(_Own):
    """A condition always holds, or never."""

    def changes(self, node):
        conditions = []
        if node.type == "if_stmt":
            conditions = [
                index + 1
                for index, child in enumerate(node.children)
                if child.type == "keyword" and child.value in ("if", "elif")
            ]
        elif node.type == "test" and node.children[1] == "if":
            conditions = [2]
        elif node.type == "comp_if":
            yield node.children[1], 1, 2, "True"
        for index in conditions:
            yield node.children[index], index, index + 1, "True"
            yield node.children[index], index, index + 1, "False"


class SwapMembership(_Own):
    """`in` becomes `not in`, and the other way."""

    def changes(self, node):
        if node.type == "comparison":
            for index in range(1, len(node.children), 2):
                swapped = {"in": "not in", "not in": "in"}.get(" ".join(_code(node.children[index]).split()))
                if swapped:
                    yield node.children[index], index, index + 1, swapped


class CatchNothing(_Own):
    """An `except` lets every error pass."""

    def changes(self, node):
        if node.type == "except_clause" and _code(node.children[1]) != "()":
            yield node.children[1], 1, 2, "()"


class RemoveBound(_Own):
    """A slice begins at the beginning, or ends at the end."""

    def changes(self, node):
        if node.type == "subscript":
            for index, child in enumerate(node.children):
                if child.type not in ("operator", "sliceop"):
                    yield child, index, index + 1, ""


OURS = {
    cls.__name__: cls
    for cls in (
        DeleteStatement,
        RemoveKeyword,
        SwapArguments,
        Unwrap,
        SwapNames,
        DropOperand,
        FixCondition,
        SwapMembership,
        CatchNothing,
        RemoveBound,
    )
}


@functools.cache
def _operator(name: str) -> Operator:
    return OURS[name]() if name in OURS else cosmic_ray.plugins.get_operator(f"core/{name}")()


def _left_alone(node) -> bool:
    """Whether nothing in a node is changed: texts, types, imports and declarations."""
    kind = node.type
    if kind in ("string", "fstring", "strings", "import_name", "import_from", "assert_stmt"):
        return True
    parent = node.parent
    if parent is None:
        return False
    if kind == "operator" and parent.type in ("parameters", "param", "lambdef"):
        return True
    if parent.type == "raise_stmt" or (parent.type == "annassign" and node is parent.children[1]):
        return True
    if (parent.type == "tfpdef" and node is parent.children[-1]) or (
        parent.type == "funcdef" and node is parent.annotation
    ):
        return True
    if _is_keyword(node) and _code(node.children[0]) in UNSEEN_KEYWORDS:
        return True
    if kind == "decorator":
        return "dataclass" in _code(node)
    if kind == "trailer" and _is_call(parent):  # What a message says.
        return _code(parent.children[0]) in ("log", "logging", "warnings") and len(parent.children) == 3
    return kind == "if_stmt" and "__name__" in _code(node.children[1])


def _nodes(node) -> Iterator:
    """All nodes but those left alone."""
    yield node
    for child in getattr(node, "children", ()):
        if not _left_alone(child):
            yield from _nodes(child)


def mutants(text: str) -> list[Mutant]:
    """All mutants of a file."""
    tree = cosmic_ray.ast.get_ast(text)
    open_places = {(node.type, node.start_pos, node.end_pos) for node in _nodes(tree)}
    starts = {start for _, start, _ in open_places}
    found = []
    for name in (*THEIRS, *OURS):
        operator, occurrence = _operator(name), 0
        for node in cosmic_ray.ast.ast_nodes(tree):
            for start, _ in operator.mutation_positions(node):
                if (node.type, node.start_pos, node.end_pos) in open_places and (start in starts):
                    found.append(Mutant(name, occurrence, start[0]))
                occurrence += 1
    return found


def mutated(text: str, mutant: Mutant) -> str | None:
    """The file with a mutant; None where it means the same or nothing."""
    tree, operator, left = cosmic_ray.ast.get_ast(text), _operator(mutant.operator), mutant.occurrence
    for node in cosmic_ray.ast.ast_nodes(tree):
        number = len(list(operator.mutation_positions(node)))
        if left < number:
            place = (
                next((index for index, each in enumerate(node.parent.children) if each is node), None)
                if node.parent
                else None
            )
            new = operator.mutate(node, left)
            if place is not None:
                node.parent.children[place : place + 1] = [] if new is None else [new]
            break
        left -= number
    changed = tree.get_code()
    with contextlib.suppress(SyntaxError, ValueError):
        if ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)):
            return changed
    return None
