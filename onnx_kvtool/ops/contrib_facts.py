"""How the schema of an operator of onnxruntime is written down."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.schema import AttributeFacts, AttributeValue, Formal, OpFacts

__all__ = [
    "CODES",
    "FLOAT",
    "FLOATS",
    "HALVES",
    "INTEGER",
    "INTEGERS",
    "NUMBER",
    "NUMBERS",
    "REQUIRED",
    "TEXT",
    "facts",
]

INTEGER, NUMBER, TEXT = ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING
INTEGERS, NUMBERS = ir.AttributeType.INTS, ir.AttributeType.FLOATS

REQUIRED = object()
"""In place of a default: a node must carry the attribute."""

FLOAT = "tensor(float)"
HALVES = f"{FLOAT} tensor(float16) tensor(bfloat16)"
CODES = "tensor(int8) tensor(uint8)"
FLOATS = f"{HALVES} tensor(double)"

_MOST = 2**31 - 1
"""What onnx says of how many values a variadic input takes."""


def facts(
    op_type: str, inputs: str, outputs: str, types: Mapping[str, str], **attributes: object
) -> OpFacts:
    """Return the facts of an operator.

    Args:
        op_type: Its name.
        inputs: Its inputs in order, each `name:type`, or `name?:type` if it may be absent, or
            `name*:type` if it takes any number of values of several types; the type is one of
            `types`, or a literal one.
        outputs: Its outputs, likewise.
        types: The types that each type parameter takes, separated by spaces.
        attributes: The type and the default of each attribute; a type alone has no default.
    """
    formals = [_formals(text, types) for text in (inputs, outputs)]
    # Absent ones before the last that is needed still count.
    fewest = [
        max((i for i, f in enumerate(side, start=1) if not f.optional), default=0)
        for side in formals
    ]
    return OpFacts(
        op_type=op_type,
        since_version=1,
        deprecated=False,
        inputs=formals[0],
        outputs=formals[1],
        attributes={name: _attribute(name, given) for name, given in attributes.items()},
        min_inputs=fewest[0],
        max_inputs=_MOST if formals[0][-1].variadic else len(formals[0]),
        min_outputs=fewest[1],
        max_outputs=len(formals[1]),
    )


def _formals(text: str, types: Mapping[str, str]) -> tuple[Formal, ...]:
    formals = []
    for word in text.split():
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


def _attribute(name: str, given: object) -> AttributeFacts:
    kind, default = given if isinstance(given, tuple) else (given, None)
    assert isinstance(kind, ir.AttributeType)
    value: AttributeValue = None if default is REQUIRED else default
    if isinstance(value, float):
        value = float(np.float32(value))
    return AttributeFacts(name, kind.value, default is REQUIRED, value)
