"""Every message is in the house style: one sentence, names in backticks, one word for one thing.

The messages are read from the source: the arguments of calls that make errors, diagnostics,
findings and notes, and beyond them every text with more than one word that is no docstring.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import onnx_kvtool
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.ops.operator_names import OPERATORS
from tests.grids import each

pytestmark = pytest.mark.long


ROOT = Path(__file__).resolve().parents[1] / "onnx_kvtool"

MESSAGE_AT = {
    "BadParameter": 0,
    "Conflict": 4,
    "Flaw": 0,
    "Found": 1,
    "MalformedNode": 1,
    "Misuse": 2,
    "Problem": 1,
    "Refusal": 1,
    "Unknown": 1,
    "Unproven": 1,
    "WrongUsage": 0,
    "lost": 1,
    "unknown_name": 0,
}
"""Position of the message in the calls that have one; errors not named here have it at 0."""

HELP_AT = {"Flaw": 1, "Misuse": 3, "Problem": 2, "WrongUsage": 2}
"""Position of the remedy, beside the keyword `help`."""

NO_PROSE = {
    "cli/completion.py",
    "ops/operator_names.py",
    "report/pictures.py",
    "report/page.py",
}
"""Modules whose texts are scripts, styles and lists of names."""

SHOWN_AS_PYTHON = {
    "commands/arguments.py",
    "model_io/claims.py",
    "lint/settings/config.py",
    "ops/view.py",
}
"""Modules that show a value of another type than the right one, or bytes that are no text."""


@dataclass(frozen=True)
class Text:
    """A text of the source; `{}` stands for what is filled in."""

    place: str
    text: str

    @property
    def outside_code(self) -> str:
        """The text without what stands in backticks."""
        return re.sub(r"`[^`]*`", "`", self.text)


_TEXTS = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.IfExp)
"""What `flat` knows."""


def flat(node: ast.expr) -> list[str]:
    """Return the texts that an expression may have; none if it is no text."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
        return ["".join(map(str, parts))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = flat(node.left), flat(node.right)
        return [a + b for a in left or ["{}"] for b in right or ["{}"]] if left or right else []
    if isinstance(node, ast.IfExp):
        return [*flat(node.body), *flat(node.orelse)]
    return []


@cache
def trees() -> list[tuple[str, ast.Module]]:
    paths = sorted(ROOT.rglob("*.py"))
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
    ]


@cache
def walked() -> list[tuple[str, list[ast.AST]]]:
    """Return all nodes of each module."""
    return [(module, [*ast.walk(tree)]) for module, tree in trees()]


def errors() -> dict[str, type[KvtoolError]]:
    """Return the classes of errors, by name."""
    for info in pkgutil.walk_packages(onnx_kvtool.__path__, "onnx_kvtool."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
    found: dict[str, type[KvtoolError]] = {}
    pending: list[type[KvtoolError]] = [KvtoolError]
    while pending:
        one = pending.pop()
        found[one.__name__] = one
        pending += one.__subclasses__()
    return found


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Return every call that makes a message: where, the name that is called, the call."""
    names = {**dict.fromkeys(errors(), 0), **MESSAGE_AT}
    found = []
    for module, nodes in walked():
        for node in nodes:
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in names:
                    found.append((f"{module}:{node.lineno}", name, node))
    return found


@cache
def messages() -> list[Text]:
    found = []
    for place, name, call in calls():
        at = MESSAGE_AT.get(name, 0)
        texts = flat(call.args[at]) if len(call.args) > at else []
        found += [Text(place, text) for text in texts if text not in ("", "{}")]
    return found


@cache
def remedies() -> list[Text]:
    found = []
    for place, name, call in calls():
        given = [k.value for k in call.keywords if k.arg == "help"]
        at = HELP_AT.get(name)
        given += call.args[at : at + 1] if at is not None else []
        found += [Text(place, text) for node in given for text in flat(node) if text]
    return found


@cache
def prose() -> list[Text]:
    """Return every text of more than one word that is no docstring and no example."""
    found = []
    is_words = re.compile(r"[A-Za-z`}] [A-Za-z`{]")
    for module, nodes in walked():
        if module in NO_PROSE:
            continue
        docs = {n.value for n in nodes if isinstance(n, ast.Expr)}
        inner: set[ast.AST] = set()
        for node in nodes:
            if not isinstance(node, _TEXTS) or node in inner or not flat(node):
                continue
            if not isinstance(node, ast.Constant):
                inner.update(ast.walk(node))
            if node in docs or isinstance(node, ast.IfExp):
                continue
            found += [
                Text(f"{module}:{node.lineno}", text)
                for text in flat(node)
                if is_words.search(text) and "ir_version:" not in text
            ]
    return found


def both() -> list[Text]:
    return [*messages(), *remedies()]


def spoken() -> list[Text]:
    return [*both(), *prose()]


def wrong(texts: list[Text], pattern: str, *, in_code: bool = False) -> list[Text]:
    found = re.compile(pattern)
    return [one for one in texts if found.search(one.text if in_code else one.outside_code)]


def test_the_texts_are_found() -> None:
    """A pattern that collects nothing would find nothing wrong."""
    assert len(messages()) > 550
    assert len(remedies()) > 200
    assert len(prose()) > 1400
    texts = [one.text for one in both()]
    assert "`{}` does not exist" in texts or "{} does not exist" in texts
    assert "`axis` is {}, expected 0 or more before version 11" in texts
    assert "did you mean `{}`?" in texts


def test_every_class_of_error_is_looked_at() -> None:
    seen = {name for _, name, _ in calls()}
    # Raised by nobody itself; made from a report; raised without a text of its own.
    assert set(errors()) - seen <= {"KvtoolError", "CodedError", "Refused", "ModelRejected"}


@pytest.mark.parametrize(
    ("texts", "pattern"),
    [
        pytest.param(both, r"[.!;:,]$", id="it ends without a stop"),
        pytest.param(messages, r"\?$", id="a message is no question"),
        pytest.param(both, r"^\s|\s$|\n|  ", id="no space too much"),
        pytest.param(both, r"[a-z`}]\. [A-Z`{]", id="it is one sentence"),
        pytest.param(remedies, r"^[A-Z][a-z]+ ", id="a remedy begins in lower case"),
        pytest.param(remedies, r"(?i)^(you|please|try|consider|maybe|it is)\b", id="imperative"),
        pytest.param(
            messages,
            rf"^(?!({'|'.join(OPERATORS)}|ONNX|Q), ?|({'|'.join(OPERATORS)})\b)[A-Z][a-z]+ ",
            id="a message begins in lower case, but for operators",
        ),
        pytest.param(both, r"(^|[\s(])'[^']+'|(^|[\s(])\"[^\"]+\"", id="names in backticks"),
        pytest.param(spoken, r"\w(n't|'re|'ll|'ve|'m)\b|\b(it|that|there|what)'s\b", id="no 'nt"),
        pytest.param(both, r"(?i)\b(error|warning|note|help): ", id="no label inside"),
        pytest.param(
            spoken,
            r"(?i)\b(can not|unable to|failed to|is not able|is unable)\b",
            id="what is impossible cannot",
        ),
        pytest.param(both, r"(?i)\b(illegal|bad|sorry|oops|unfortunately)\b", id="facts"),
        pytest.param(both, r"\((s|es)\)", id="a plural is one"),
        pytest.param(prose, r"\w\((s|es)\)(?!:)", id="a plural is one, everywhere"),
        pytest.param(
            spoken,
            r"(?i)\b(behavior|color|favor|center|\bgray\b|neighbor|labeled|license\b|artifact"
            r"|(optim|recogn|summar|organ|minim|maxim|util)iz)",
            id="British spelling",
        ),
        pytest.param(spoken, r"\bopset-\d|\bOpSet|\bop set\b|\bopset version", id="opset 18"),
        pytest.param(spoken, r"(?i)\b(ir-version|IR_version|ir version)\b(?<!IR version)", id="IR"),
        pytest.param(
            spoken,
            r"(?i)\b(input|output|cache|key|past|present|inner) tensors?\b|\btensor names?\b",
            id="a value is no tensor",
        ),
        pytest.param(both, r"\bshould\b|\bshall\b|\bneeds? to\b", id="must, or has to"),
        pytest.param(both, r"(?i)\b(violation|issue)\b", id="a finding"),
        pytest.param(both, r"\bonnx ?runtime(?<!onnxruntime)\b|\bORT\b|\bOnnx\b", id="onnxruntime"),
    ],
)
def test_style(texts: Callable[[], list[Text]], pattern: str) -> None:
    assert wrong(texts(), pattern) == []


def test_backticks_come_in_pairs() -> None:
    assert [one for one in both() if one.text.count("`") % 2] == []


def test_python_never_quotes_what_was_given() -> None:
    """`!r` shows the quotes and escapes of Python; names stand in backticks."""
    found = []
    for place, _, call in calls():
        found += [
            place.partition(":")[0]
            for node in ast.walk(call)
            if isinstance(node, ast.FormattedValue) and node.conversion == ord("r")
        ]
    assert set(found) == SHOWN_AS_PYTHON


def test_what_one_suggests_is_a_question_and_nothing_else_is() -> None:
    questions = {one.text for one in spoken() if one.text.endswith("?")}
    assert all(text.startswith("did you mean `") for text in questions), questions


def imported(nodes: list[ast.AST]) -> set[str]:
    """Return the modules that a module imports by name."""
    return {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def test_suggestions_are_made_in_one_place() -> None:
    makers = {module for module, nodes in walked() if "difflib" in imported(nodes)}
    # The difference of two texts, and codes, which are near when characters are in place.
    assert makers == {"core/words.py", "commands/check_file.py", "lint/settings/config.py"}


@each("rule", RULES)
def test_the_summary_of_a_rule_is_one_sentence(rule) -> None:
    assert re.fullmatch(r"([A-Z`]|onnx)[^\n]*[^.\s]", rule.summary)
    assert not re.search(r"[a-z]\. [A-Z]", rule.summary)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
