"""Operators of onnxruntime that onnx does not define, as facts of the same kind.

`onnx.defs` does not have them. `contrib_schemas.json` holds what onnxruntime registers, as
`python -m tests.ops.contrib_schemas` wrote it; a test holds it against the installed release. Each
operator has one version, 1.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain, is_onnxruntimes
from onnx_kvtool.ops.schema import (
    AttributeFacts,
    AttributeValue,
    Formal,
    OpFacts,
    is_standard,
    op_facts,
)

__all__ = [
    "BLOCKED",
    "DATA",
    "DOMAIN",
    "OperatorName",
    "contrib_facts",
    "default_of",
    "facts_of",
    "is_contrib",
    "published",
]

DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""

DATA = "contrib_schemas.json"
"""The file beside this one that holds the schemas."""

OperatorName = tuple[str, str]
"""Domain and name of an operator."""

_MOST = 2**31 - 1
"""What onnx says of how many values a variadic input takes."""


@functools.cache
def published() -> Mapping[OperatorName, Mapping[str, Any]]:
    """Return what the file says of each operator that onnxruntime registers and ONNX does not.

    `cpu` is whether onnxruntime has a kernel for CPUs. Operators with a rule have their schema too:
    `inputs` and `outputs`, each `name:type`, `name?:type` if it may be absent, or `name*:type` if
    it takes any number of values of several types; `types` by type parameter; `attributes`, each
    with its type, marked `!` if a node must carry it, and with its default if it has one.
    """
    text = files("onnx_kvtool.ops").joinpath(DATA).read_text(encoding="utf-8")
    lines = {tuple(key.rpartition("::")[::2]): line for key, line in json.loads(text).items()}
    del lines["", ""]  # the release
    return lines


@functools.cache
def contrib_facts(domain: str, op_type: str) -> OpFacts | None:
    """Return what is known of an operator of onnxruntime; None for any other."""
    line = published().get((domain, op_type), {})
    return facts_of(op_type, line) if "inputs" in line else None


def facts_of(op_type: str, line: Mapping[str, Any]) -> OpFacts:
    """Return the facts of an operator that a line of the file has the schema of."""
    inputs, outputs = (_formals(line[side], line["types"]) for side in ("inputs", "outputs"))
    return OpFacts(
        op_type=op_type,
        since_version=1,
        deprecated=False,
        inputs=inputs,
        outputs=outputs,
        attributes={name: _attribute(name, *given) for name, given in line["attributes"].items()},
        min_inputs=_fewest(inputs),
        max_inputs=_MOST if inputs[-1].variadic else len(inputs),
        min_outputs=_fewest(outputs),
        max_outputs=len(outputs),
    )


def _formals(words: Sequence[str], types: Mapping[str, str]) -> tuple[Formal, ...]:
    formals = []
    for word in words:
        name, _, kind = word.partition(":")
        formals.append(
            Formal(
                name=name.rstrip("?*"),
                optional=name.endswith("?"),
                variadic=name.endswith("*"),
                homogeneous=not name.endswith("*"),
                type_parameter=kind,
                types=frozenset(types.get(kind, kind).split()),
            )
        )
    return tuple(formals)


def _fewest(formals: Sequence[Formal]) -> int:
    """Return how many values there are at least: absent ones before a required one count."""
    return max((i for i, formal in enumerate(formals, start=1) if not formal.optional), default=0)


def _attribute(name: str, kind: str, default: Any = None) -> AttributeFacts:
    number = ir.AttributeType[kind.rstrip("!")].value
    return AttributeFacts(name, number, kind.endswith("!"), default)


BLOCKED = frozenset(
    (DOMAIN, name)
    for name in (
        "GatherBlockQuantized",
        "MatMulNBits",
        "MatMulNBitsMlp",
        "MatMulNBitsQkv",
        "QMoE",
    )
)
"""Operators on weights in blocks of codes: what they are in ONNX has a DequantizeLinear."""


def is_contrib(node: ir.Node, opset: int) -> bool:
    """Return whether a node is of an operator that onnxruntime has beside those of ONNX.

    Args:
        node: A node that calls no function of its model.
        opset: Version of the default domain that the graph was written for.
    """
    if is_onnxruntimes(node.domain):
        return True
    if node.domain != "":
        return False
    if not is_standard(node):
        return True
    # onnxruntime has it below the opset that brought it to ONNX.
    known = op_facts(node.op_type, opset if node.version is None else node.version) is not None
    return not known and contrib_facts("", node.op_type) is not None


def default_of(op_type: str, attribute: str, opset: int, domain: str = "") -> AttributeValue:
    """Return the default of an attribute, for who reads a node without a view.

    Args:
        op_type: The operator.
        attribute: Name of the attribute.
        opset: Version of the domain; for operators of onnxruntime it does not matter.
        domain: The domain; the default one may be spelled `ai.onnx`.

    Returns:
        None where the operator, the attribute or a default does not exist.
    """
    domain = canonical_domain(domain)
    facts = op_facts(op_type, opset, domain) or contrib_facts(domain, op_type)
    declared = None if facts is None else facts.attributes.get(attribute)
    return None if declared is None else declared.default
