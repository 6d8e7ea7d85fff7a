"""Whether a node is legal at another opset, and which changes keep its meaning."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import onnx_ir as ir

from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.changes import (
    CHANGES,
    PADS,
    VALUE_LIMITS,
    Change,
    changed_meaning,
    first_change,
    windows_begin_inside,
)
from onnx_kvtool.ops.schema import (
    AttributeFacts,
    AttributeValue,
    OpFacts,
    clashing_types,
    op_facts,
    op_history,
    type_name,
)
from onnx_kvtool.ops.view import absent_inputs, given_dtype, given_input, given_integer

# What changed between opsets for a node that comes to a later one.
#
# Most changes of `ops.changes` matter both ways. These operators differ on the way up: a later
# version often accepts everything that the earlier one meant, and sometimes reads the same
# attributes in another way. Found by reading the texts of all versions from opset 7 to 28 (onnx
# 1.23), and by running both forms where the texts are unclear.


_D = ir.DataType


def further_outputs(node: ir.Node) -> bool:
    """Return whether a node has an output besides the first; one without a name is absent."""
    return any(output.name for output in node.outputs[1:])


def _scalar_scale(node: ir.Node) -> bool:
    scale = given_input(node, 1)
    return scale is not None and scale.shape is not None and len(scale.shape) == 0


def _no_infinity_to_fnuz(node: ir.Node) -> bool:
    """Whether a Cast or CastLike certainly turns no infinity into a float8 without infinities."""
    if given_integer(node, "saturate") == 0:
        return True
    dtype = given_dtype(node)
    if dtype is not None and not dtype.is_floating_point():
        return True
    to = given_integer(node, "to") if node.op_type == "Cast" else given_dtype(node, 1)
    return to not in (None, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2FNUZ)


_POOL = Change(22, "a last window in the padding counts before opset 22", windows_begin_inside)
_SCALE = Change(13, "the scale is one number before opset 13", _scalar_scale)
_INFINITY = Change(
    24, "an infinity becomes NaN in a float8 of the FNUZ kind before opset 24", _no_infinity_to_fnuz
)

_TRAINING = Change(
    14,
    "further outputs are those of a training step, in another form, before 14",
    lambda node: not further_outputs(node),
)
_BOUND = Change(
    11,
    "an absent bound is the largest float32 before opset 11",
    lambda node: given_dtype(node) in (_D.FLOAT, _D.FLOAT16),  # which have no greater ones
)
_UNLIKE = Change(
    19,
    "input and scale may differ in type before opset 19",
    lambda node: given_dtype(node) not in (None, _D.INT32),
)
_EQUAL = "equal parts are asked for by nothing before opset 18"
_MASK = "a mask of one column is for all keys before opset 24, and for the first from then on"


def _mask_broadcasts_not(node: ir.Node) -> bool:
    """Whether no mask of Attention has certainly one column where there may be more keys."""
    mask = given_input(node, 3)
    if mask is None or mask.shape is None or not len(mask.shape) or mask.shape[-1] != 1:
        return True
    key = node.inputs[1]
    if key is None or key.shape is None or len(key.shape) < 3:
        return False
    return key.shape[-2] == 1


_UPGRADE_CHANGES: Mapping[str, Sequence[Change]] = Table(
    "change of meaning on the way up",
    [
        (op, changes)
        for names, *changes in (
            ("Attention", Change(24, _MASK, _mask_broadcasts_not)),
            ("AveragePool MaxPool", _POOL),
            ("BatchNormalization", _TRAINING),
            ("Cast CastLike", _INFINITY),
            ("Clip", _BOUND),
            ("ConvTranspose", PADS),
            ("DequantizeLinear", _SCALE),
            ("Mod",),
            ("OneHot", Change(11, "a negative index selects nothing before opset 11")),
            ("QuantizeLinear", _SCALE, _UNLIKE),
            (
                "Resize",
                Change(11, "the coordinates are those of `asymmetric` before opset 11"),
                Change(13, "an empty `scales` stands for an absent one before opset 13"),
            ),
            ("Scan", Change(9, "the first axis is the batch before opset 9")),
            ("Split", Change(18, _EQUAL, lambda node: given_input(node, 1) is not None)),
        )
        for op in names.split()
    ],
)


def changed_by_upgrade(node: ir.Node, old: OpFacts, new: OpFacts) -> str | None:
    """Return the change of meaning that matters to a node on the way to a later version.

    Returns:
        One sentence without a full stop; None when the same text means the same in both.
    """
    changes = _UPGRADE_CHANGES.get(node.op_type)
    if changes is None:
        changes = [c for c in CHANGES.get(node.op_type, ()) if not c.is_added]
    return first_change(changes, node, old, new)


# Whether a node is legal at another opset, and what has to change so that it means the same there.
#
# This follows from a comparison of the two versions of the operator in `onnx.defs`, and from a
# short list of changes of meaning that schemas do not show.


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a node cannot stand at an opset as it is.

    Attributes:
        code: Stable identifier (`new-operator`, `element-type`, ...).
        text: One sentence without a full stop.
        kind: The kind that `examine` found, more exact than the code; "" from `fit`.
        subject: Name of the attribute, the formal input or the value; "" for the whole node.
        help: What a user can do about it; None where that depends on who asks.
    """

    code: str
    text: str
    kind: str = field(default="", compare=False)
    subject: str = field(default="", compare=False)
    help: str | None = field(default=None, compare=False)


@dataclass(slots=True)
class Fit:
    """How a node of one opset fits another.

    Attributes:
        problems: Why it does not fit; empty if it does after the changes below.
        drop: Attributes to remove, as the other version lacks them and they have the default.
        add: Attributes to write out, because their default differs between the versions.
        as_attribute: Inputs that are attributes in the other version: (index, name).
    """

    problems: list[Problem] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    add: dict[str, AttributeValue] = field(default_factory=dict)
    as_attribute: list[tuple[int, str]] = field(default_factory=list)


_NOTHING = Fit()


def fit(node: ir.Node, source: int, target: int) -> Fit:
    """Compare a node of the default domain, written for opset `source`, with opset `target`.

    Element types that are unknown are a problem only where the two versions differ in types.
    """
    old, new = op_facts(node.op_type, source), op_facts(node.op_type, target)
    if old is None:
        text = f"`{node.op_type}` is no operator of the default domain at opset {source}"
        return Fit([Problem("unknown-operator", text)])
    if new is None:
        text = f"`{node.op_type}` came with opset {op_history(node.op_type)[-1].since_version}"
        return Fit([Problem("new-operator", text)])
    if old.since_version == new.since_version:
        return _NOTHING
    result = Fit()
    if new.deprecated:
        text = f"`{node.op_type}` was removed in opset {new.since_version}"
        result.problems.append(Problem("deprecated-operator", text))
        return result
    is_upgrade = new.since_version > old.since_version
    if (
        change := (changed_by_upgrade if is_upgrade else changed_meaning)(node, old, new)
    ) is not None:
        result.problems.append(Problem("changed-meaning", change))
    _fit_attributes(node, old, new, result)
    _fit_inputs(node, old, new, result)
    result.problems.extend(_values(node, new, target))
    result.problems.extend(_types(node, new, target, old if is_upgrade else None))
    clashes = clashing_types(node, old, new)
    result.problems.extend(
        Problem("element-type", f"{c} {target}", "element-type") for c in clashes
    )
    return result


def examine(node: ir.Node, opset: int, facts: OpFacts | None = None) -> Iterator[Problem]:
    """Yield everything about a node that `opset`, a version of its domain, does not allow.

    Looks at the operator, attribute names, types and values, the number of inputs and outputs,
    required inputs, and the element types that are known. Attributes that refer to a parameter of
    a function count as given. The kinds are `unknown-operator`, `deprecated-operator`,
    `unknown-attribute`, `attribute-type`, `missing-attribute`, `wrong-arity`,
    `missing-input`, `attribute-value` and `element-type`.

    Without `facts`, the schema is the one of onnx.
    """
    facts = op_facts(node.op_type, opset, node.domain) if facts is None else facts
    if facts is None or facts.deprecated:
        text = f"`{node.op_type}` does not exist at opset {opset}"
        kind = "unknown-operator" if facts is None else "deprecated-operator"
        yield Problem("unknown-operator", text, kind)
        return
    if node.attributes.data or facts.attributes:
        yield from _attributes(node, facts, opset)
    if len(node.inputs) > facts.max_inputs:
        given = counted(len(node.inputs), "input")
        text = f"{given}, `{node.op_type}` takes at most {facts.max_inputs}"
        yield Problem("input", f"{text} at opset {opset}", "wrong-arity")
    if not facts.min_outputs <= len(node.outputs) <= facts.max_outputs:
        given = counted(len(node.outputs), "output")
        least, most = facts.min_outputs, facts.max_outputs
        span = str(most) if least == most else f"{least} to {most}"
        text = f"{given}, `{node.op_type}` has {span}"
        yield Problem("output", f"{text} at opset {opset}", "wrong-arity")
    yield from _absent_inputs(node, facts)
    yield from _values(node, facts, opset)
    for problem in _types(node, facts, opset):
        if problem.code != "unknown-element-type":
            yield problem


def _attributes(node: ir.Node, facts: OpFacts, opset: int) -> Iterator[Problem]:
    for name, given in node.attributes.items():
        declared = facts.attributes.get(name)
        if declared is None:
            text = f"`{node.op_type}` has no attribute `{name}` at opset {opset}"
            yield Problem("attribute", text, "unknown-attribute", name)
        elif given.type.value != declared.type:
            text = f"attribute `{name}` is of type {given.type.name}"
            yield Problem("attribute-type", text, "attribute-type", name)
    for name, attribute in facts.attributes.items():
        if attribute.required and name not in node.attributes:
            text = f"attribute `{name}` is required at opset {opset}"
            yield Problem("attribute", text, "missing-attribute", name)


def _absent_inputs(node: ir.Node, facts: OpFacts) -> Iterator[Problem]:
    for formal in absent_inputs(node, facts):
        text = f"input `{formal.name}` of `{node.op_type}` is required and absent"
        yield Problem("input", text, "missing-input", formal.name)


def _fit_attributes(node: ir.Node, old: OpFacts, new: OpFacts, result: Fit) -> None:
    for name, given in node.attributes.items():
        if name in new.attributes:
            continue
        declared = old.attributes.get(name)
        if declared is not None and not given.is_ref() and _same(given.value, declared):
            result.drop.append(name)
        else:
            text = f"attribute `{name}` does not exist {_where(old, new, name)}"
            result.problems.append(Problem("attribute", text))
    for name, attribute in old.attributes.items():
        other = new.attributes.get(name)
        if other is None or name in node.attributes or attribute.default == other.default:
            continue
        if attribute.default is None:
            text = f"attribute `{name}` has the default {other.default!r} at the other opset only"
            result.problems.append(Problem("attribute", text))
        else:
            result.add[name] = attribute.default
    for name, attribute in new.attributes.items():
        if name in node.attributes or name in old.attributes:
            continue
        given_as_input = any(f.name == name for f in old.inputs)
        if attribute.required and not given_as_input:
            text = f"attribute `{name}` is required at opset {new.since_version}"
            result.problems.append(Problem("attribute", text))


def _fit_inputs(node: ir.Node, old: OpFacts, new: OpFacts, result: Fit) -> None:
    names = {f.name for f in new.inputs}
    last = 0
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        formal = old.input(index)
        if formal is not None and formal.name not in names and formal.name in new.attributes:
            result.as_attribute.append((index, formal.name))
        else:
            last = index + 1
    if last > new.max_inputs:
        formal = old.input(last - 1)
        name = formal.name if formal else str(last - 1)
        text = f"input `{name}` does not exist {_where(old, new, name)}"
        result.problems.append(Problem("input", text))
    result.problems.extend(_absent_inputs(node, new))
    if new.inputs and new.inputs[-1].variadic and len(node.inputs) < new.min_inputs:
        given = counted(len(node.inputs), "input")
        text = f"{given}, at least {new.min_inputs} at {new.since_version}"
        result.problems.append(Problem("input", text))
    if len(node.outputs) > new.max_outputs:
        given = counted(len(node.outputs), "output")
        text = f"{given}, at most {new.max_outputs} at {new.since_version}"
        result.problems.append(Problem("output", text))


def _values(node: ir.Node, new: OpFacts, target: int) -> Iterator[Problem]:
    for name in new.attributes:
        given = node.attributes.get(name)
        limits = VALUE_LIMITS.get((node.op_type, name), {})
        if given is not None and limits and target < (since := limits.get(given.value, 0)):
            text = f"`{name}={given.value}` does not exist before opset {since}"
            yield Problem("attribute-value", text, "attribute-value", name)


def _types(
    node: ir.Node, new: OpFacts, target: int, narrower: OpFacts | None = None
) -> Iterator[Problem]:
    """Yield what is wrong with the types of a node.

    An unknown type is no problem if the new version takes every type of the version `narrower`.
    """
    for kind, values, formals, before in (
        ("input", node.inputs, new.input, narrower and narrower.input),
        ("output", node.outputs, new.output, narrower and narrower.output),
    ):
        for index, value in enumerate(values):
            formal = formals(index)
            if value is None or formal is None or (kind == "output" and not value.name):
                continue  # an empty name is an absent output
            name = type_name(value)
            if name is None:
                if not value.is_graph_output() and not value.uses():
                    continue  # an output that nobody reads need not be known
                if before and (had := before(index)) is not None and had.types <= formal.types:
                    continue
                text = f"the type of {kind} `{value.name}` is unknown"
                yield Problem("unknown-element-type", text)
            elif name not in formal.types:
                text = f"{kind} `{value.name}` is {name}, which `{node.op_type}` does not take"
                text = f"{text} at opset {target}"
                yield Problem("element-type", text, "element-type", value.name or "")


def _where(old: OpFacts, new: OpFacts, name: str) -> str:
    """Return the opsets of the version `new` and its neighbours that lack a name of `old`."""
    if new.since_version > old.since_version:
        return f"at opset {new.since_version}"
    return f"before opset {_came(old, name)}"


def _came(facts: OpFacts, name: str) -> int:
    """Return the opset that introduced an attribute or input of this name."""
    versions = [v for v in op_history(facts.op_type) if v.since_version <= facts.since_version]
    with_name = takewhile(
        lambda v: name in v.attributes or any(f.name == name for f in v.inputs), versions
    )
    return min((v.since_version for v in with_name), default=facts.since_version)


def _same(given: object, declared: AttributeFacts) -> bool:
    """Compare an attribute with a default, floats in the precision of a file."""
    default = declared.default
    if isinstance(given, float) and isinstance(default, float):
        return struct.pack("<f", given) == struct.pack("<f", default)
    if isinstance(given, (list, tuple)):
        given = tuple(given)
        # `dilations` has no default in the schema, but means ones.
        if declared.name == "dilations" and default is None:
            return all(item == 1 for item in given)
    return given == default
