# SPDX-License-Identifier: Apache-2.0
"""Mutant schemata: a C++ source in, the same source with every mutant in it out.

Each mutable place is rewritten into a call of tests/mutation/mutant.h that does the original, or
what a mutant does instead where KVGUARD_MUTANT names it. Lines keep their numbers, so that what a
compiler says of the rewritten file holds of the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_cpp.language()))
_NAMESPACE = "kvguard_mutant::"

# operator -> (helper, what each of its mutants makes of it)
_RELATIONS = {
    "==": ("Eq", ["!="]),
    "!=": ("Ne", ["=="]),
    "<": ("Lt", ["<=", ">="]),
    "<=": ("Le", ["<", ">"]),
    ">": ("Gt", [">=", "<="]),
    ">=": ("Ge", [">", "<"]),
}
_ARITHMETIC = {
    "+": ("Add", ["-"]),
    "-": ("Sub", ["+"]),
    "*": ("Mul", ["/"]),
    "/": ("Div", ["*"]),
    "%": ("Mod", ["*"]),
}
_LOGICAL = {"&&": "||", "||": "&&"}

# What a compiler must be able to compute, or what is no expression at all.
_CONSTANT = {
    "template_argument_list",
    "template_parameter_list",
    "static_assert_declaration",
    "enumerator",
    "bitfield_clause",
    "alignas_qualifier",
    "attribute_specifier",
    "attribute_declaration",
    "decltype",
    "sizeof_expression",
    "alignof_expression",
    "noexcept",
    "requires_clause",
    "requires_expression",
    "concept_definition",
    "preproc_def",
    "preproc_function_def",
    "preproc_include",
    "ERROR",
}
# Function attributes in macros are not C++ to a parser that expands none.
_ATTRIBUTE_MACRO = re.compile(rb"\bKVGUARD_AVX2(_KERNEL)?\b")
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|0[bB][01']+|[0-9][0-9']*)([uUlLzZ]*)$")


@dataclass(frozen=True)
class Mutant:
    id: int
    file: str
    line: int  # from 1
    column: int  # from 1, in bytes
    operator: str
    change: str  # what stands there and what the mutant makes of it
    text: str  # the whole line, without its indentation
    before: str  # the line before it, likewise

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}:{self.operator}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


class Rewriter:
    """One file. skipped: places (Mutant.place) that are left as they are."""

    def __init__(
        self, file: str, source: bytes, first_id: int, skipped: Iterable[str] = ()
    ) -> None:
        self._file = file
        self._source = source
        self._next_id = first_id
        self._skipped = set(skipped)
        self._lines = source.decode().splitlines()
        self.mutants: list[Mutant] = []  # those that are in the text
        self.left_out: list[Mutant] = []  # those that were skipped
        parsed = _ATTRIBUTE_MACRO.sub(lambda m: b" " * len(m.group()), source)
        self._tree = _PARSER.parse(parsed)
        self.text = self._emit(self._tree.root_node)

    # ---- mutants

    def _add(self, node: Node, operator: str, changes: list[str]) -> int | None:
        """The first id of a place's mutants; None where the place is to be left as it is."""
        first = self._next_id
        self._next_id += len(changes)
        made = [
            Mutant(
                first + i,
                self._file,
                node.start_point[0] + 1,
                node.start_point[1] + 1,
                operator if len(changes) == 1 else f"{operator}-{i + 1}",
                change,
                self._lines[node.start_point[0]].strip(),
                self._lines[node.start_point[0] - 1].strip() if node.start_point[0] > 0 else "",
            )
            for i, change in enumerate(changes)
        ]
        if any(mutant.place in self._skipped for mutant in made):
            self.left_out += made
            return None
        self.mutants += made
        return first

    # ---- text

    def _original(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def _copy(self, node: Node) -> str:
        """The node, its children rewritten."""
        if node.child_count == 0:
            return self._original(node)
        parts = []
        at = node.start_byte
        for child in node.children:
            parts.append(self._source[at : child.start_byte].decode())
            parts.append(self._emit(child))
            at = child.end_byte
        parts.append(self._source[at : node.end_byte].decode())
        return "".join(parts)

    def _emit(self, node: Node) -> str:
        if _is_constant(node):
            return self._original(node)
        method = getattr(self, "_emit_" + node.type, None)
        return method(node) if method else self._copy(node)

    def _between(self, left: Node, right: Node) -> str:
        """The line breaks between two nodes; comments there are dropped, lines are not."""
        return "\n" * (right.start_point[0] - left.end_point[0])

    def _change(self, left: Node, operator: str, other: str, right: Node) -> str:
        a, b = _short(self._original(left)), _short(self._original(right))
        return f"{a} {operator} {b} -> {a} {other} {b}"

    # ---- expressions

    def _emit_binary_expression(self, node: Node) -> str:
        left, right = _field(node, "left"), _field(node, "right")
        operator = _field(node, "operator").type
        if operator in _LOGICAL:
            return self._logical(node, left, operator, right)
        if operator in _RELATIONS:
            kind = "relation"
            helper, others = _RELATIONS[operator]
        elif operator in _ARITHMETIC:
            kind = "arithmetic"
            helper, others = _ARITHMETIC[operator]
        else:
            return self._copy(node)
        changes = [self._change(left, operator, other, right) for other in others]
        first = self._add(_field(node, "operator"), kind, changes)
        if first is None:
            return self._copy(node)
        gap = self._between(left, right)
        return f"{_NAMESPACE}{helper}({first}, {self._emit(left)}, {gap}{self._emit(right)})"

    def _logical(self, node: Node, left: Node, operator: str, right: Node) -> str:
        both = self._truth(left), self._truth(right)
        gap = self._between(left, right)
        change = self._change(left, operator, _LOGICAL[operator], right)
        first = self._add(_field(node, "operator"), "logical", [change])
        if first is None:
            return f"({both[0]} {operator} {gap}{both[1]})"
        # a || b is !(!a && !b): the operands stand once, and the right one is computed only where
        # the mutant would.
        flipped = [f"{_NAMESPACE}Flip({first}, static_cast<bool>({text}))" for text in both]
        return f"{_NAMESPACE}Flip({first}, {flipped[0]} {operator} {gap}{flipped[1]})"

    def _truth(self, node: Node) -> str:
        """An expression of which only the truth counts: a condition, an operand of && and ||."""
        inner = _without_parentheses(node)
        if _is_constant(inner) or inner.type in ("declaration", "true", "false"):
            return self._emit(node)
        if inner.type == "binary_expression" and _operator(inner) in {**_RELATIONS, **_LOGICAL}:
            return self._emit(node)  # it has mutants of its own
        if inner.type == "unary_expression" and _operator(inner) == "!":
            argument = _field(inner, "argument")
            return f"!({self._truth(argument)})"
        first = self._add(inner, "negation", [f"{_short(self._original(inner))} -> its opposite"])
        if first is None:
            return self._emit(node)
        return f"{_NAMESPACE}Flip({first}, static_cast<bool>({self._emit(inner)}))"

    def _emit_unary_expression(self, node: Node) -> str:
        return self._truth(node) if _operator(node) == "!" else self._copy(node)

    def _emit_condition_clause(self, node: Node) -> str:
        if node.parent is not None and node.parent.type == "switch_statement":
            return self._copy(node)
        value = _field(node, "value")
        return self._replace(node, value, self._truth(value))

    def _emit_do_statement(self, node: Node) -> str:
        condition = _field(node, "condition")
        return self._replace(node, condition, f"({self._truth(condition)})")

    def _emit_for_statement(self, node: Node) -> str:
        condition = node.child_by_field_name("condition")
        if condition is None:
            return self._copy(node)
        return self._replace(node, condition, self._truth(condition))

    def _emit_conditional_expression(self, node: Node) -> str:
        condition = _field(node, "condition")
        return self._replace(node, condition, self._truth(condition))

    def _replace(self, node: Node, which: Node, text: str) -> str:
        """As _copy, with a text in one child's place."""
        parts = []
        at = node.start_byte
        for child in node.children:
            parts.append(self._source[at : child.start_byte].decode())
            parts.append(text if child == which else self._emit(child))
            at = child.end_byte
        parts.append(self._source[at : node.end_byte].decode())
        return "".join(parts)

    def _emit_number_literal(self, node: Node) -> str:
        text = self._original(node)
        match = _INTEGER.fullmatch(text)
        if match is None:
            return text
        value = _value(match[1].replace("'", ""))
        others = ["1"] if value == 0 else ["0"] if value == 1 else ["+ 1", "- 1"]
        changes = [
            f"{text} -> {text + ' ' + other if other[0] in '+-' else other}" for other in others
        ]
        first = self._add(node, "constant", changes)
        return text if first is None else f"{_NAMESPACE}Int({first}, {text})"

    def _constant_truth(self, node: Node) -> str:
        text = self._original(node)
        first = self._add(node, "constant", [f"{text} -> {'false' if text == 'true' else 'true'}"])
        return text if first is None else f"{_NAMESPACE}Flip({first}, {text})"

    _emit_true = _constant_truth
    _emit_false = _constant_truth

    def _emit_assignment_expression(self, node: Node) -> str:
        operator = _operator(node)
        if operator not in ("+=", "-="):
            return self._copy(node)
        right = _field(node, "right")
        other = "-=" if operator == "+=" else "+="
        change = self._change(_field(node, "left"), operator, other, right)
        first = self._add(_field(node, "operator"), "arithmetic", [change])
        if first is None:
            return self._copy(node)
        return self._replace(node, right, f"{_NAMESPACE}Negate({first}, {self._emit(right)})")

    def _emit_update_expression(self, node: Node) -> str:
        operator = _operator(node)
        argument = _field(node, "argument")
        other = "--" if operator == "++" else "++"
        prefix = node.children[0].type == operator
        text = _short(self._original(argument))
        change = (
            f"{operator}{text} -> {other}{text}" if prefix else f"{text}{operator} -> {text}{other}"
        )
        first = self._add(_field(node, "operator"), "arithmetic", [change])
        if first is None:
            return self._copy(node)
        helper = ("Pre" if prefix else "Post") + ("Inc" if operator == "++" else "Dec")
        return f"{_NAMESPACE}{helper}({first}, {self._emit(argument)})"

    # ---- statements

    def _deletable(self, node: Node, inner: str) -> str:
        first = self._add(node, "deletion", [f"{_short(self._original(node))} -> nothing"])
        if first is None:
            return inner
        return f"{{ if ({_NAMESPACE}Keep({first})) {inner} }}"

    def _emit_expression_statement(self, node: Node) -> str:
        if node.named_child_count == 0 or re.match(r"[A-Z0-9_]+\b", self._original(node)):
            return self._copy(node)  # a macro may hold a return
        return self._deletable(node, self._copy(node))

    def _emit_continue_statement(self, node: Node) -> str:
        return self._deletable(node, self._original(node))

    _emit_break_statement = _emit_continue_statement

    def _emit_return_statement(self, node: Node) -> str:
        values = [child for child in node.named_children if child.type != "comment"]
        if not values:
            # At the end of a function it does nothing.
            return self._deletable(node, self._original(node))
        value = values[0]
        if not _returns_bool(node):
            return self._copy(node)
        inner = _without_parentheses(value)
        text = self._truth(value)
        if inner.type == "binary_expression" and _operator(inner) in _LOGICAL:
            first = self._add(
                inner, "negation", [f"{_short(self._original(inner))} -> its opposite"]
            )
            if first is not None:
                text = f"{_NAMESPACE}Flip({first}, {text})"
        return self._replace(node, value, text)


def _value(digits: str) -> int:
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    return int(digits, 8 if octal else 0)


def _field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    if child is None:
        raise ValueError(f"{node.type} without {name} at line {node.start_point[0] + 1}")
    return child


def _operator(node: Node) -> str:
    return _field(node, "operator").type


def _without_parentheses(node: Node) -> Node:
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    return node


def _is_constant(node: Node) -> bool:
    if node.type in _CONSTANT:
        return True
    if node.type in ("declaration", "field_declaration"):
        # constexpr variables (a constexpr function is a function_definition), `virtual ... = 0`.
        return any(child.text in (b"constexpr", b"virtual") for child in node.children)
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "case_statement":
        return parent.child_by_field_name("value") == node
    if parent.type in ("preproc_if", "preproc_elif"):
        return parent.child_by_field_name("condition") == node
    if parent.type in ("array_declarator", "abstract_array_declarator"):
        return parent.child_by_field_name("size") == node
    if parent.type == "if_statement" and node.type == "condition_clause":
        return any(child.type == "constexpr" for child in parent.children)
    return False


def _returns_bool(node: Node) -> bool:
    """Whether the innermost function around a return is declared to return bool."""
    at = node.parent
    while at is not None and at.type not in ("function_definition", "lambda_expression"):
        at = at.parent
    if at is None:
        return False
    if at.type == "function_definition":
        declared = at.child_by_field_name("type")
        declarator = at.child_by_field_name("declarator")
        return (
            declared is not None
            and declared.text == b"bool"
            and declarator is not None
            and declarator.type == "function_declarator"
        )
    declarator = at.child_by_field_name("declarator")
    if declarator is None:
        return False
    return any(
        child.type == "trailing_return_type" and child.text.split() == [b"->", b"bool"]
        for child in declarator.children
    )
