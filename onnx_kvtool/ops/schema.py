"""The facts of one version of one operator, read from `onnx.defs`, and what they ask of a node."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

from onnx_kvtool.core.tables import Table

# The facts of one version of one operator, read once from `onnx.defs`.


NEWEST: int = onnx.defs.onnx_opset_version()
"""The newest opset of the default domain that the installed onnx knows."""

DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
"""The domains whose operators ONNX defines."""

AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class AttributeFacts:
    """One attribute of an operator.

    Attributes:
        name: Name in the schema.
        type: Number of the attribute type (`onnx.AttributeProto.AttributeType`).
        required: Whether a node must have it.
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
        name: Name in the schema.
        optional: Whether it may be absent.
        variadic: Whether it accepts any number of values.
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
    SimplifiedLayerNormalization); such a node is unknown, like one of a custom domain.
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


def has_body(op_type: str) -> bool:
    """Return whether the newest version of an operator of the default domain has a body."""
    schema: Any = onnx.defs.get_schema(op_type, NEWEST, "")
    return bool(schema.has_function or schema.has_context_dependent_function)


@functools.cache
def op_facts(op_type: str, opset: int, domain: str = "") -> OpFacts | None:
    """Return the version of `op_type` that a model of `opset` means; None when there is none.

    An opset above the newest one means the newest. Domains that ONNX does not define give None.
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
        attributes={name: _attribute_of(name, a) for name, a in schema.attributes.items()},
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


def _attribute_of(name: str, attribute: onnx.defs.OpSchema.Attribute) -> AttributeFacts:
    default: AttributeValue = None
    if attribute.default_value.name:
        value = onnx.helper.get_attribute_value(attribute.default_value)
        if isinstance(value, (int, float)):
            default = value
        elif isinstance(value, bytes):
            default = value.decode()
        else:
            default = tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    number = int(attribute.type)  # type: ignore[call-overload]  # an enum; the stub hides it
    return AttributeFacts(name, number, attribute.required, default)


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


# The strings that an attribute takes.
#
# Schemas list them in prose only. These are from the descriptions of onnx 1.23.2, all versions of
# an operator together. `changes.VALUE_LIMITS` has the values that came later than their attribute.


STRINGS: Mapping[tuple[str, str], frozenset[str]] = Table(
    "attribute with listed strings",
    [
        ((name, attribute), frozenset(words.split()))
        for place, words in {
            "AveragePool Conv ConvInteger ConvTranspose LpPool MaxPool QLinearConv: auto_pad": (
                "NOTSET SAME_UPPER SAME_LOWER VALID"
            ),
            "BitShift: direction": "LEFT RIGHT",
            "Cast CastLike: round_mode": "up down nearest",
            "CausalConvWithState: activation": "none silu swish",
            "DepthToSpace SpaceToDepth: mode": "DCR CRD",
            "GRU LSTM RNN: direction": "forward reverse bidirectional",
            "Gelu: approximate": "none tanh",
            "GridSample: mode": "linear nearest cubic bilinear bicubic",
            "GridSample: padding_mode": "zeros border reflection",
            "ImageDecoder: pixel_format": "RGB BGR Grayscale",
            "LinearAttention: update_rule": "linear gated delta gated_delta",
            "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss: reduction": "none sum mean",
            "Pad: mode": "constant reflect edge wrap",
            "Resize: coordinate_transformation_mode": (
                "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
                "tf_crop_and_resize tf_half_pixel_for_nn"
            ),
            "Resize: keep_aspect_ratio_policy": "stretch not_larger not_smaller",
            "Resize: mode": "nearest linear cubic",
            "Resize: nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
            "RoiAlign: mode": "avg max",
            "RoiAlign: coordinate_transformation_mode": "half_pixel output_half_pixel",
            "ScatterElements ScatterND: reduction": "none add mul max min",
            "StringNormalizer: case_change_action": "NONE LOWER UPPER",
            "TensorScatter: mode": "linear circular",
            "TfIdfVectorizer: mode": "TF IDF TFIDF",
            "Upsample: mode": "nearest linear bilinear",
        }.items()
        for names, attribute in [place.split(": ")]
        for name in names.split()
    ],
)
"""The strings of an attribute, by operator of the default domain and name of the attribute."""


def unlisted(node: ir.Node) -> Iterator[tuple[str, str]]:
    """Yield the name and value of each attribute of a node whose string `STRINGS` does not list.

    An attribute that refers to a parameter of a function has no value yet. The mode of
    TensorScatter is judged by its own view, with a code of its own.
    """
    if node.op_type == "TensorScatter":
        return
    for name, given in node.attributes.data.items():
        allowed = STRINGS.get((node.op_type, name))
        if allowed is None or given.is_ref() or not isinstance(given.value, str):
            continue
        if given.value not in allowed:
            yield name, given.value


# The facts of a node that its schema judges, in a form that can be compared.


_BY_VALUE = frozenset({ir.AttributeType.STRING, ir.AttributeType.INT})


def signature(node: ir.Node) -> Hashable:
    """Return a key. Nodes with equal keys have the same problems in `examine`, names aside.

    A decoder has tens of thousands of nodes and a few dozen signatures, so each kind of node is
    examined once. The key has the operator, the types of inputs and outputs, which of them are
    absent, and of each attribute name, type, and the value of a string or an integer, which may be
    an element type. Schemas say nothing about other values.
    """
    return (
        node.op_type,
        node.domain,
        tuple([None if value is None else _type(value.type) for value in node.inputs]),
        tuple([_type(value.type) if value.name else None for value in node.outputs]),
        tuple([_attribute_key(given) for given in node.attributes.data.values()]),
    )


def _type(type_: ir.TypeProtocol | None) -> Hashable:
    # The hash of a type of onnx_ir is that of its text, which takes long to make.
    if type_.__class__ is ir.TensorType:
        return type_.dtype
    return "unknown" if type_ is None else repr(type_)


def _attribute_key(given: ir.Attr) -> Hashable:
    kind = given.type
    return given.name, kind, given.is_ref(), given.value if kind in _BY_VALUE else None


# Types that one version of an operator lets differ and another one does not.


_Slot = tuple[str, int]
"""`input` or `output`, and the position."""


def clashing_types(node: ir.Node, old: OpFacts, new: OpFacts) -> Iterator[str]:
    """Yield what differs in type although `new` wants one type, where `old` takes several.

    The exponent of Pow-12 has a type of its own, that of Pow-7 the type of the base. Types that are
    unknown are not judged.

    The node is written for `old`. Each sentence ends before the number of the opset.
    """
    for slots in _joined(old.op_type, old.since_version, new.since_version):
        found: dict[str, str] = {}
        for kind, index in slots:
            values = node.inputs if kind == "input" else node.outputs
            value = values[index] if index < len(values) else None
            type_ = None if value is None or not value.name else type_name(value)
            if value is not None and type_ is not None:
                found.setdefault(type_, value.name or "")
        if len(found) > 1:
            given = " and ".join(f"`{name}` is {type_}" for type_, name in found.items())
            yield f"{given}, which `{node.op_type}` takes of one type only at opset"


@functools.cache
def _joined(op_type: str, old: int, new: int) -> tuple[tuple[_Slot, ...], ...]:
    """Return the inputs and outputs that have one type in version `new`, and had several."""
    before, after = op_facts(op_type, old), op_facts(op_type, new)
    if before is None or after is None:
        return ()
    groups: dict[str, list[_Slot]] = {}
    for kind, formals in (("input", after.inputs), ("output", after.outputs)):
        for index, formal in enumerate(formals):
            if not formal.variadic:
                groups.setdefault(formal.type_parameter, []).append((kind, index))

    def had(slot: _Slot) -> str | None:
        formal = (before.input if slot[0] == "input" else before.output)(slot[1])
        return None if formal is None else formal.type_parameter

    return tuple(
        tuple(slots) for slots in groups.values() if len({had(slot) for slot in slots} - {None}) > 1
    )
