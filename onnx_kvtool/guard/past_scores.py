"""The scores of an Attention over past keys, whose number onnx's inference leaves out."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.small_constants import HOLDERS, Contents
from onnx_kvtool.model_io.forms import every_holder

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="gives the scores of an Attention over past keys the width of the new keys alone",
    instead="marks the width of such scores as unknown before inference",
)

_MARK = "\x00kvtool.scores"
"""End of the names of what stands between the scores and those who read them; no file has it."""

_PAST_KEY, _SCORES = 4, 3

_Holder = onnx.GraphProto | onnx.FunctionProto


def infer_past_scores(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, where the width of scores over past keys is unknown.

    onnx 1.23.2 takes the number of new keys for it where that of the past ones is a name, and
    whatever reads the scores is then inferred wrongly. Joined along the keys with something of
    which the rank alone is known, they keep their other dimensions.
    """
    if not any(map(_is_meant, contents.of("Attention"))):
        return infer(contents)
    copy = onnx.ModelProto()
    copy.CopyFrom(contents.message)
    for holder in every_holder(copy, HOLDERS):
        _widen(holder)
    result = infer(Contents(copy))
    for holder in every_holder(result, HOLDERS):
        _restore(holder)
    return result


def _is_meant(node: onnx.NodeProto) -> bool:
    if node.op_type != "Attention" or node.domain:
        return False
    given, made = node.input[_PAST_KEY : _PAST_KEY + 1], node.output[_SCORES : _SCORES + 1]
    return any(given) and any(made)


def _widen(holder: _Holder) -> None:
    nodes = []
    for node in holder.node:
        nodes.append(node)
        if not _is_meant(node):
            continue
        scores = node.output[_SCORES]
        narrow, more = f"{scores}{_MARK}", f"{scores}.more{_MARK}"
        node.output[_SCORES] = narrow
        # Nobody makes the second input of Pad, so that the sizes of what it gives are unknown.
        nodes.append(_node("Pad", [narrow, f"{scores}.pads{_MARK}"], more))
        joined = _node("Concat", [narrow, more], scores)
        joined.attribute.add(name="axis", type=onnx.AttributeProto.INT, i=3)
        nodes.append(joined)
    if len(nodes) > len(holder.node):
        del holder.node[:]
        holder.node.extend(nodes)


def _node(op_type: str, inputs: list[str], output: str) -> onnx.NodeProto:
    return onnx.NodeProto(op_type=op_type, input=inputs, output=[output], name=f"{output}{_MARK}")


def _restore(holder: _Holder) -> None:
    nodes = [node for node in holder.node if not node.name.endswith(_MARK)]
    if len(nodes) == len(holder.node):
        return
    for node in nodes:
        node.output[:] = [name.removesuffix(_MARK) for name in node.output]
    del holder.node[:]
    holder.node.extend(nodes)
    values = [value for value in holder.value_info if not value.name.endswith(_MARK)]
    del holder.value_info[:]
    holder.value_info.extend(values)
