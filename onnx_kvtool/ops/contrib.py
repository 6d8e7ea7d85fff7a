"""Operators of onnxruntime that onnx does not define: their facts, and attention with a cache."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain, is_onnxruntimes
from onnx_kvtool.core.tables import Table
from onnx_kvtool.ops.schema import (
    AttributeFacts,
    AttributeValue,
    Formal,
    OpFacts,
    is_standard,
    op_facts,
)
from onnx_kvtool.ops.view import MalformedNode, given_input, given_integer

# The dequantized values of the 4-bit types of bitsandbytes, for onnxruntime's MatMulBnb4.


_FP4 = (0.0, 0.00520833333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def quant_type_values(quant_type: int) -> npt.NDArray[np.float32]:
    """Return the dequantized value of each 4-bit value, (16,), float32.

    The tables are from onnxruntime 1.32.0 (`blockwise_quant_block_bnb4.h`); its kernel returns them
    for a unit matrix.

    `quant_type` is 0 for FP4, whose values from 8 on are the first eight, negated, or 1 for NF4.
    """
    if quant_type == 1:
        return np.array(_NF4, np.float32)
    half = np.array(_FP4, np.float32)
    return np.concatenate([half, -half])


# Operators of onnxruntime that onnx does not define, as facts of the same kind.
#
# `onnx.defs` does not have them. `contrib_schemas.json` holds what onnxruntime registers, as
# `python -m tests.ops.contrib_schemas` wrote it; a test holds it against the installed release.
# Each operator has one version, 1.


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
    """Return the line of each operator that onnxruntime registers and ONNX does not have.

    `cpu` is whether onnxruntime has a kernel for CPUs. Operators with a rule have their schema too.
    `inputs` and `outputs` are lists of `name:type`, `name?:type` if it may be absent, or
    `name*:type` if it takes any number of values of several types. `types` go by type parameter.
    Each of `attributes` has its type, `!` if a node must carry it, and its default if there is one.
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
    """Return the facts of an operator from its schema in a line of the file."""
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
    """Return the smallest number of values; absent ones before a required one count."""
    return max((i for i, formal in enumerate(formals, start=1) if not formal.optional), default=0)


def _attribute(name: str, kind: str, default: Any = None) -> AttributeFacts:
    number = ir.AttributeType[kind.rstrip("!")].value
    return AttributeFacts(name, number, kind.endswith("!"), default)


BLOCKED = frozenset(
    (DOMAIN, name)
    for name in ["GatherBlockQuantized", "MatMulNBits", "MatMulNBitsMlp", "MatMulNBitsQkv", "QMoE"]
)
"""Operators on block-quantized weights; their standard form has a DequantizeLinear."""


def is_contrib(node: ir.Node, opset: int) -> bool:
    """Return whether a node is of an operator that onnxruntime has beside those of ONNX.

    The node must not call a function of its model. `opset` is that of the default domain.
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
    """Return the default of an attribute, for code that reads a node without a view.

    Return None where the operator, the attribute or a default does not exist. For operators of
    onnxruntime the opset does not matter.
    """
    domain = canonical_domain(domain)
    facts = op_facts(op_type, opset, domain) or contrib_facts(domain, op_type)
    declared = None if facts is None else facts.attributes.get(attribute)
    return None if declared is None else declared.default


# Attention with a cache as onnxruntime's own domain, `com.microsoft`, defines it.
#
# docs/ContribOperators.md of microsoft/onnxruntime (release 1.31) says which of their inputs and
# outputs are caches.


Sharing = Literal["always", "past_sequence_length", "past_present_share_buffer"]


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """One cache of an attention operator, by the names of its documentation.

    Attributes:
        past: Input that holds the cache.
        present: Output that holds the updated one.
        update: Input with the new rows; None where they are computed inside the operator.
    """

    past: str
    present: str
    update: str | None


@dataclass(frozen=True, slots=True)
class ContribFacts:
    """One attention operator of `com.microsoft`.

    Attributes:
        caches: The caches that it updates.
        sharing: When past and present may be one buffer of max_sequence_length rows: `always`, or
            when the input or the attribute of this name says so.
        axis: Sequence axis of each cache, counted from the front.
        batch_axis: Batch axis of each cache.
    """

    caches: tuple[CacheSlot, ...]
    sharing: Sharing
    axis: int = 2
    batch_axis: int = 0


_KEY_VALUE = (
    CacheSlot("past_key", "present_key", "key"),
    CacheSlot("past_value", "present_value", "value"),
)

_ONE_TENSOR = (CacheSlot("past", "present", None),)
"""Key and value together: (2, batch_size, num_heads, rows, head_size)."""

CONTRIB_ATTENTIONS: Table[str, ContribFacts] = Table(
    "contrib attention",
    [
        ("GroupQueryAttention", ContribFacts(_KEY_VALUE, "always")),
        ("MultiHeadAttention", ContribFacts(_KEY_VALUE, "past_sequence_length")),
        (
            "DecoderMaskedMultiHeadAttention",
            ContribFacts(_KEY_VALUE, "past_present_share_buffer"),
        ),
        ("SparseAttention", ContribFacts(_KEY_VALUE, "always")),
        ("Attention", ContribFacts(_ONE_TENSOR, "past_present_share_buffer", 3, 1)),
    ],
)
"""Operators of `com.microsoft` that keep a cache, by name."""


class ContribAttention:
    """One attention node of `com.microsoft`, its inputs and outputs by name.

    Args:
        node: The node; it is not changed.

    Attributes:
        facts: What the operator is.

    Raises:
        MalformedNode: If the operator is not in `CONTRIB_ATTENTIONS`, or the node has no query.
    """

    def __init__(self, node: ir.Node) -> None:
        schema = contrib_facts(node.domain, node.op_type) if node.domain == DOMAIN else None
        if schema is None or node.op_type not in CONTRIB_ATTENTIONS:
            raise MalformedNode(
                "unknown-operator",
                f"`{node.domain}::{node.op_type}` is no attention that is known",
            )
        if not node.inputs or node.inputs[0] is None:
            raise MalformedNode(
                "missing-input",
                f"`{node.op_type}` requires its input `{schema.inputs[0].name}`, which is absent",
            )
        self.node, self.facts = node, CONTRIB_ATTENTIONS[node.op_type]
        self._inputs = {formal.name: i for i, formal in enumerate(schema.inputs)}
        self._outputs = dict(
            zip((formal.name for formal in schema.outputs), node.outputs, strict=False)
        )

    def index(self, name: str) -> int:
        """Return the position of the input called `name`."""
        return self._inputs[name]

    def input(self, name: str) -> ir.Value | None:
        """Return the input called `name`; None when it is absent or empty."""
        return given_input(self.node, self._inputs[name])

    def output(self, name: str) -> ir.Value | None:
        """Return the output called `name`; None when it is absent or empty."""
        value = self._outputs.get(name)
        return value if value is not None and value.name else None

    @property
    def is_sharing(self) -> bool:
        """Whether past and present may be one buffer, into which the operator writes new rows."""
        how = self.facts.sharing
        if how == "always":
            return True
        if how == "past_sequence_length":
            return self.input(how) is not None
        return kept_window(self.node) is not None or given_integer(self.node, how) == 1

    @property
    def write_position(self) -> ir.Value | None:
        """The value that holds the first row written; None where the operator derives it."""
        if "past_sequence_length" not in self._inputs or not self.is_sharing:
            return None
        return self.input("past_sequence_length")

    @property
    def head_size(self) -> int | None:
        """Head size of the key, from the width of `query` or `key`; None when it is unknown.

        The width of a packed query is (num_heads + 2 * kv_num_heads) * head_size for
        GroupQueryAttention, which is packed when it has no key.
        """
        if self.node.op_type != "GroupQueryAttention":
            return None
        heads, groups = (given_integer(self.node, n) for n in ("num_heads", "kv_num_heads"))
        if heads is None or groups is None:
            return None
        key = self.input("key")
        value, parts = (self.node.inputs[0], heads + 2 * groups) if key is None else (key, groups)
        if value is None or value.shape is None or len(value.shape) != 3 or parts < 1:
            return None
        width = value.shape[2]
        return width // parts if isinstance(width, int) and width % parts == 0 else None


def kept_window(node: ir.Node) -> int | None:
    """Return how many keys a query sees, if the cache drops those before; else None."""
    if node.domain != DOMAIN or given_integer(node, "sliding_window_cache") != 1:
        return None
    return given_integer(node, "local_window_size")
