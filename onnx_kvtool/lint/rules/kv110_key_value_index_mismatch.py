"""KV110: the key and the value of one layer are written at different places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["KeyValueIndexMismatch"]

_DEPTH = 6


class KeyValueIndexMismatch(ModelRule):
    """The key and the value of one layer use different write positions, modes or axes.

    ## What it does

    Pairs the caches of keys and values, by the Attention that reads both or else by their names,
    and compares `write_indices`, `mode` and the sequence axis of their updates. Positions that are
    computed by equal nodes from equal values count as equal, and a cache of keys that is stored
    transposed may have its rows along another axis, if there are as many.

    ## Why is this bad?

    Row i of the keys and row i of the values belong to one token. Written at different positions,
    the attention weights of one token are applied to the value of another, without any error.

    ## References

    - [TensorScatter-24](https://onnx.ai/onnx/operators/onnx__TensorScatter.html): "The optional
      `write_indices` input indicates the write index for each sample in the batch, assumed to be
      zero if not provided."
    - [Attention-24](https://onnx.ai/onnx/operators/onnx__Attention.html): K and V share the
      dimension `kv_sequence_length`.
    """

    code = "KV110"
    name = "key-value-index-mismatch"
    severity = "warning"
    basis = "heuristic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value,
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start, int64[2] length)
            => (float[2, 3, 7, 5] present_key, float[2, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, length)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] past_key, float[2, 3, 7, 5] past_value,
            float[2, 3, 1, 5] key, float[2, 3, 1, 5] value, int64[2] start)
            => (float[2, 3, 7, 5] present_key, float[2, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare the updates of each pair."""
        from onnx_kvtool.lint.facts.layers import key_value_pairs

        for key, value in key_value_pairs(context):
            for what in _differences(key, value):
                yield self.found(
                    value.location,
                    f"the key `{key.past}` and the value `{value.past}` of one layer {what}",
                    help="update both at the same position",
                )


def _differences(key: Cache, value: Cache) -> Iterator[str]:
    if key.kind != value.kind or key.node is value.node:
        return
    if key.kind == "tensor_scatter" and key.calls == value.calls:
        here, there = _indices(key.node), _indices(value.node)
        if not _same(here, there, _DEPTH):
            yield f"are written at {_spoken(here)} and at {_spoken(there)}"
    elif not key.calls + value.calls:
        # A position that is not proved has no name here.
        names = key.write_indices, value.write_indices
        if None not in names and names[0] != names[1]:
            yield f"are written at `{names[0]}` and at `{names[1]}`"
    if key.mode is not None and value.mode is not None and key.mode != value.mode:
        yield f"have the modes `{key.mode}` and `{value.mode}`"
    if key.axis is not None and value.axis is not None and key.axis != value.axis:
        rows, others = key.capacity, value.capacity
        if isinstance(rows, int) and isinstance(others, int) and rows != others:
            yield f"are written along axis {key.axis} of {rows} and axis {value.axis} of {others}"


def _indices(node: ir.Node) -> ir.Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def _spoken(value: ir.Value | None) -> str:
    return "position 0, without `write_indices`," if value is None else f"`{value.name}`"


def _same(one: ir.Value | None, other: ir.Value | None, depth: int) -> bool:
    """Return whether two values are one, or computed alike a few nodes far.

    Beyond that depth they count as the same: nothing is proved, and nothing is said.
    """
    if one is other:
        return True
    if one is None or other is None:
        return False
    if depth == 0:
        return True
    first, second = one.producer(), other.producer()
    if first is None or second is None:
        return _same_constant(one, other)
    if first.op_identifier() != second.op_identifier() or one.index() != other.index():
        stripped, rest = _copied(first), _copied(second)
        if stripped is None and rest is None:
            return False
        return _same(stripped or one, rest or other, depth - 1)
    if {k: _text(a) for k, a in first.attributes.items()} != {
        k: _text(a) for k, a in second.attributes.items()
    }:
        return False
    if first.op_type == "Shape":  # the sizes of keys and values of one layer are alike
        return True
    return len(first.inputs) == len(second.inputs) and all(
        _same(a, b, depth - 1) for a, b in zip(first.inputs, second.inputs, strict=True)
    )


def _copied(node: ir.Node) -> ir.Value | None:
    is_copy = node.op_type == "Identity" and not node.domain and node.inputs
    return node.inputs[0] if is_copy else None


def _same_constant(one: ir.Value, other: ir.Value) -> bool:
    from onnx_kvtool.analysis.constants import constant_integers
    from onnx_kvtool.lint.facts.past import through

    if through(one) is through(other):
        return True
    numbers = constant_integers(one)
    return numbers is not None and numbers == constant_integers(other)


def _text(attribute: ir.Attr) -> object:
    """Return what tells two attributes apart; a tensor by its small integers."""
    from onnx_kvtool.analysis.constants import tensor_integers

    value = attribute.value
    if attribute.type.name != "TENSOR" or attribute.is_ref():
        return value
    held = tensor_integers(value)
    return id(value) if held is None else (held.numbers.shape, held.numbers.tobytes())
