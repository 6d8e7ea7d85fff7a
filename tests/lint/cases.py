"""Cases of rules: a model in ONNX text, and where the rule applies in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.parser
import onnx_ir as ir

from onnx_kvtool.lint.engine import look
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import RULES, Rule
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.targets.target import Target, find_target
from tests.grids import each

__all__ = ["Case", "cases", "check_case", "findings", "lint"]


@dataclass(frozen=True)
class Case:
    """One model and what one rule says of it.

    Attributes:
        name: What the case shows, a sentence.
        model: The model in ONNX text, or a function that makes the message.
        at: What the rule must report, in order: the label of the node (its name, `#<index>` for an
            unnamed one), or the name of the value for a finding without a node, "" for one about
            the model; empty where the rule must be silent.
        says: Text that the message of the first finding must hold.
        severity: Severity of all findings; None for that of the rule.
        targets: Releases of runtimes, as `--target` takes them.
    """

    name: str
    model: str | Callable[[], onnx.ModelProto]
    at: Sequence[str] = ()
    says: str = ""
    severity: str | None = None
    targets: Sequence[str] = ()

    def message(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(self.model) if isinstance(self.model, str) else self.model()


def cases(lines: Iterable[Case]) -> Any:
    """Hold all lines in one test, as `case`."""
    return each("case", {line.name: line for line in lines})


def lint(model: ir.Model, rules: Iterable[Rule], targets: Sequence[Target] = ()) -> list[Finding]:
    """Return the findings in a model, without suppressed ones."""
    return look(model, rules, targets)[0]


def findings(
    code: str, message: onnx.ModelProto, targets: Sequence[str] = (), directory: str = ""
) -> list[Finding]:
    """Return what one rule finds in a model message whose external data starts in `directory`."""
    model = deserialize(message.SerializeToString(), directory)
    return lint(model, [RULES[code]], [find_target(name) for name in targets])


def check_case(code: str, case: Case, directory: str = "") -> None:
    """Assert that a rule finds in a model what its case says, and nothing else.

    Args:
        code: Code of the rule.
        case: The case.
        directory: Where the external data of the model starts.
    """
    found = findings(code, case.message(), case.targets, directory)
    places = [(f.location.node_label or f.location.value or "") for f in found]
    assert places == list(case.at), [str(f.diagnostic) for f in found]
    assert {f.code for f in found} <= {code}
    if found:
        assert case.says in found[0].diagnostic.message
        expected = case.severity or RULES[code].severity
        assert {f.severity for f in found} == {expected}
