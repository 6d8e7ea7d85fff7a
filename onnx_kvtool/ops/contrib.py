"""Attention with a cache as onnxruntime's own domain, `com.microsoft`, defines it.

Which of their inputs and outputs are caches is what docs/ContribOperators.md of
microsoft/onnxruntime says (release 1.31); `contrib_schema` reads the schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import onnx_ir as ir

from onnx_kvtool.core.table import Table
from onnx_kvtool.ops.contrib_schema import DOMAIN, contrib_facts
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.view import MalformedNode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CONTRIB_ATTENTIONS", "CacheSlot", "ContribAttention", "ContribFacts"]

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
        op_type: Name of the operator.
        caches: The caches that it updates.
        axis: Sequence axis of each cache, counted from the front.
        batch_axis: Batch axis of each cache.
        sharing: When past and present may be one buffer of max_sequence_length rows: `always`, or
            when the input or the attribute of this name says so.
    """

    op_type: str
    caches: tuple[CacheSlot, ...]
    axis: int
    batch_axis: int
    sharing: Sharing

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs in order."""
        return tuple(formal.name for formal in self._schema.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs in order."""
        return tuple(formal.name for formal in self._schema.outputs)

    @property
    def _schema(self) -> OpFacts:
        schema = contrib_facts(DOMAIN, self.op_type)
        assert schema is not None
        return schema


_KEY_VALUE = (
    CacheSlot("past_key", "present_key", "key"),
    CacheSlot("past_value", "present_value", "value"),
)

CONTRIB_ATTENTIONS: Table[str, ContribFacts] = Table(
    "contrib attention",
    [
        (
            facts.op_type,
            facts,
        )
        for facts in (
            ContribFacts(
                "GroupQueryAttention",
                _KEY_VALUE,
                axis=2,
                batch_axis=0,
                sharing="always",
            ),
            ContribFacts(
                "MultiHeadAttention",
                _KEY_VALUE,
                axis=2,
                batch_axis=0,
                sharing="past_sequence_length",
            ),
            ContribFacts(
                "DecoderMaskedMultiHeadAttention",
                _KEY_VALUE,
                axis=2,
                batch_axis=0,
                sharing="past_present_share_buffer",
            ),
            ContribFacts(
                "SparseAttention",
                _KEY_VALUE,
                axis=2,
                batch_axis=0,
                sharing="always",
            ),
            # Key and value are one tensor: (2, batch_size, num_heads, rows, head_size).
            ContribFacts(
                "Attention",
                (CacheSlot("past", "present", None),),
                axis=3,
                batch_axis=1,
                sharing="past_present_share_buffer",
            ),
        )
    ],
)  # fmt: skip
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
        facts = CONTRIB_ATTENTIONS.get(node.op_type) if node.domain == DOMAIN else None
        if facts is None:
            raise MalformedNode(
                "unknown-operator",
                f"`{node.domain}::{node.op_type}` is no attention that is known",
            )
        if not node.inputs or node.inputs[0] is None:
            raise MalformedNode(
                "missing-input",
                f"`{node.op_type}` requires its input `{facts.inputs[0]}`, which is absent",
            )
        self.node = node
        self.facts = facts

    def index(self, name: str) -> int:
        """Return the position of the input called `name`."""
        return self.facts.inputs.index(name)

    def input(self, name: str) -> ir.Value | None:
        """Return the input called `name`; None when it is absent or empty."""
        index = self.index(name)
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def output(self, name: str) -> ir.Value | None:
        """Return the output called `name`; None when it is absent or empty."""
        index = self.facts.outputs.index(name)
        value = self.node.outputs[index] if index < len(self.node.outputs) else None
        return value if value is not None and value.name else None

    @property
    def is_sharing(self) -> bool:
        """Whether past and present may be one buffer, into which the operator writes new rows."""
        how = self.facts.sharing
        if how == "always":
            return True
        if how == "past_sequence_length":
            return self.input(how) is not None
        return _integer(self.node.attributes, how) == 1

    @property
    def write_position(self) -> ir.Value | None:
        """The value that holds the first row written; None where the operator derives it."""
        if "past_sequence_length" not in self.facts.inputs or not self.is_sharing:
            return None
        return self.input("past_sequence_length")

    @property
    def head_size(self) -> int | None:
        """Head size of the key, from the width of `query` or `key`; None when it is unknown.

        The width of a packed query is (num_heads + 2 * kv_num_heads) * head_size for
        GroupQueryAttention, which is packed when it has no key.
        """
        if self.facts.op_type != "GroupQueryAttention":
            return None
        attributes = self.node.attributes
        heads, kv_heads = _integer(attributes, "num_heads"), _integer(attributes, "kv_num_heads")
        key = self.input("key")
        if heads is None or kv_heads is None:
            return None
        value, parts = (
            (self.node.inputs[0], heads + 2 * kv_heads) if key is None else (key, kv_heads)
        )
        if value is None or value.shape is None or len(value.shape) != 3 or parts < 1:
            return None
        width = value.shape[2]
        return width // parts if isinstance(width, int) and width % parts == 0 else None


def _integer(attributes: Mapping[str, ir.Attr], name: str) -> int | None:
    given = attributes.get(name)
    if given is None or given.is_ref() or given.type != ir.AttributeType.INT:
        return None
    return given.as_int()
