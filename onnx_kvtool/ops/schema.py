"""The facts of one version of one operator, read once from `onnx.defs`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

__all__ = [
    "DOMAINS",
    "NEWEST",
    "AttributeFacts",
    "Formal",
    "OpFacts",
    "is_standard",
    "newest_of",
    "op_facts",
    "op_history",
    "operators",
    "same_version",
    "tensor_type",
    "type_name",
]

NEWEST: int = onnx.defs.onnx_opset_version()
"""The newest opset of the default domain that the installed onnx knows."""

DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
"""The domains whose operators ONNX defines."""

AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class AttributeFacts:
    """One attribute of an operator.

    Attributes:
        name: Name as in the schema.
        type: Number of the attribute type (`onnx.AttributeProto.AttributeType`).
        required: Whether a node must carry it.
        default: The schema's default; None when there is none. Floats are rounded to float32, as
            they are in a file.
    """

    name: str
    type: int
    required: bool
    default: AttributeValue


@dataclass(frozen=True, slots=True)
class Formal:
    """One formal input or output of an operator.

    Attributes:
        name: Name as in the schema.
        optional: Whether it may be absent.
        variadic: Whether it takes any number of values.
        homogeneous: Whether the values of a variadic one are all of one type.
        type_parameter: Name of the type constraint (`T`), or a literal type.
        types: Names of the types it takes, such as `tensor(float)`.
    """

    name: str
    optional: bool
    variadic: bool
    homogeneous: bool
    type_parameter: str
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class OpFacts:
    """One version of one operator that ONNX defines.

    Attributes:
        op_type: Name of the operator.
        since_version: The opset that introduced this version.
        deprecated: Whether this version only says that the operator is gone.
        inputs: Formal inputs in order; the last may be variadic.
        outputs: Formal outputs in order; the last may be variadic.
        attributes: Attributes by name.
        min_inputs: Fewest inputs a node may have.
        max_inputs: Most inputs a node may have.
        min_outputs: Fewest outputs a node may have.
        max_outputs: Most outputs a node may have.
    """

    op_type: str
    since_version: int
    deprecated: bool
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: Mapping[str, AttributeFacts]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int

    def input(self, index: int) -> Formal | None:
        """Return the formal input at `index`; None past the last one."""
        return _formal(self.inputs, index)

    def output(self, index: int) -> Formal | None:
        """Return the formal output at `index`; None past the last one."""
        return _formal(self.outputs, index)


def _formal(formals: tuple[Formal, ...], index: int) -> Formal | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].variadic else None


def is_standard(node: ir.Node) -> bool:
    """Return whether ONNX defines the operator of a node, at any opset that onnx knows.

    Optimisers put operators of their own into the default domain (onnxruntime's
    SimplifiedLayerNormalization); such a node is a stranger like one of a custom domain.
    """
    return node.domain == "" and op_facts(node.op_type, NEWEST) is not None


@functools.cache
def newest_of(domain: str) -> int:
    """Return the newest version of a domain of `DOMAINS` that the installed onnx knows."""
    if not domain:
        return NEWEST  # the others need all schemas, which takes 10 ms
    return max(s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain)


@functools.cache
def operators(domain: str = "") -> frozenset[str]:
    """Return the names of all operators of a domain at its newest version."""
    schemas = onnx.defs.get_all_schemas()
    return frozenset(s.name for s in schemas if s.domain == domain and not s.deprecated)


@functools.cache
def op_facts(op_type: str, opset: int, domain: str = "") -> OpFacts | None:
    """Return the version of `op_type` that a model of `opset` means; None when there is none.

    Args:
        op_type: The operator.
        opset: Version of its domain. Above the newest one the answer is that of the newest.
        domain: The domain; one of which ONNX defines nothing has no operators here.
    """
    if domain not in DOMAINS:
        return None
    try:
        schema = onnx.defs.get_schema(op_type, min(max(opset, 0), newest_of(domain)), domain)
    except onnx.defs.SchemaError:
        return None
    constraints = {
        c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints
    }
    return OpFacts(
        op_type=op_type,
        since_version=schema.since_version,
        deprecated=schema.deprecated,
        inputs=_formals(schema.inputs, constraints),
        outputs=_formals(schema.outputs, constraints),
        attributes={name: _attribute(name, a) for name, a in schema.attributes.items()},
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
    )


@functools.cache
def op_history(op_type: str) -> tuple[OpFacts, ...]:
    """Return every version of an operator of the default domain, the newest first.

    () for an operator that `NEWEST` does not know.
    """
    versions = []
    facts = op_facts(op_type, NEWEST)
    while facts is not None:
        versions.append(facts)
        # Before version 1 there is none, and an opset of 0 is no opset.
        facts = op_facts(op_type, facts.since_version - 1) if facts.since_version > 1 else None
    return tuple(versions)


def _formals(parameters: object, constraints: Mapping[str, frozenset[str]]) -> tuple[Formal, ...]:
    option = onnx.defs.OpSchema.FormalParameterOption
    return tuple(
        Formal(
            name=p.name,
            optional=p.option == option.Optional,
            variadic=p.option == option.Variadic,
            homogeneous=p.is_homogeneous,
            type_parameter=p.type_str,
            types=constraints.get(p.type_str, frozenset({p.type_str})),
        )
        for p in parameters  # type: ignore[attr-defined]
    )


def _attribute(name: str, attribute: onnx.defs.OpSchema.Attribute) -> AttributeFacts:
    default: AttributeValue = None
    if attribute.default_value.name:
        value = onnx.helper.get_attribute_value(attribute.default_value)
        if isinstance(value, bytes):
            default = value.decode()
        elif isinstance(value, (int, float, str)):
            default = value
        else:
            default = tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return AttributeFacts(name, _type_number(attribute), attribute.required, default)


def _type_number(attribute: onnx.defs.OpSchema.Attribute) -> int:
    number: int = int(attribute.type)  # type: ignore[call-overload]  # an enum; the stub hides it
    return number


def same_version(op_type: str, one: int, other: int) -> bool:
    """Return whether two opsets mean the same version of an operator; False where one lacks it."""
    here, there = op_facts(op_type, one), op_facts(op_type, other)
    return here is not None and there is not None and here.since_version == there.since_version


def tensor_type(dtype: ir.DataType) -> str:
    """Return the schema's name for a tensor of an element type: `tensor(float)`."""
    return f"tensor({dtype.name.lower()})"


def type_name(value: ir.Value) -> str | None:
    """Return the schema's name for the type of `value` (`tensor(float)`); None when unknown."""
    return _type_name(value.type) if value.type is not None else None


def _type_name(type_: ir.TypeProtocol) -> str | None:
    kind = type(type_).__name__
    if kind == "TensorType":
        dtype = type_.dtype
        return tensor_type(dtype) if dtype != ir.DataType.UNDEFINED else None
    elem = getattr(type_, "elem_type", None)
    if elem is None or isinstance(elem, int):
        return None
    inner = _type_name(elem)
    prefix = {"SequenceType": "seq", "OptionalType": "optional", "SparseTensorType": None}.get(kind)
    return None if prefix is None or inner is None else f"{prefix}({inner})"
