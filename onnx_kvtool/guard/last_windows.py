"""Windows of a pool that begin behind the axis, which onnx's inference counts before opset 22."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.small_constants import HOLDERS, Contents
from onnx_kvtool.model_io.forms import every_node

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="counts, before opset 22, the windows of a pool with `ceil_mode` that begin behind the"
    " axis, which onnxruntime and onnx's own reference leave out",
    instead="lets inference know such a pool without `ceil_mode`, and with the padding behind that"
    " gives as many windows",
)

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_FIRST_RIGHT = 22
_CHANGED = frozenset({"auto_pad", "ceil_mode", "pads"})


def infer_past_last_windows(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, where no window of a pool begins behind the axis.

    A pool whose attributes are parameters of a function stays as it is.
    """
    message = contents.message
    if not any(map(_is_meant, _pools(message))):
        return infer(contents)
    copy = onnx.ModelProto()
    copy.CopyFrom(message)
    for node in filter(_is_meant, _pools(copy)):
        _round_down(node)
    result = infer(Contents(copy))
    for given, inferred in zip(_pools(message), _pools(result), strict=True):
        if _is_meant(given):
            del inferred.attribute[:]
            inferred.attribute.extend(given.attribute)
    return result


def _pools(message: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the pools before opset 22."""
    for holder, root in ((message, message.graph), *((f, f) for f in message.functions)):
        imports = [i.version for i in holder.opset_import if i.domain in DEFAULT_DOMAINS]
        if imports and imports[0] < _FIRST_RIGHT:
            nodes = every_node(root, HOLDERS)
            yield from (n for n in nodes if n.op_type in POOLS and n.domain in DEFAULT_DOMAINS)


def _is_meant(node: onnx.NodeProto) -> bool:
    given = {attribute.name: attribute for attribute in node.attribute}
    if "ceil_mode" not in given or any(a.ref_attr_name for a in node.attribute):
        return False
    return given["ceil_mode"].i != 0 and "kernel_shape" in given


def _round_down(node: onnx.NodeProto) -> None:
    """Give a pool so much padding behind that it has as many windows, rounded down.

    Those that reach out by less than a stride are let in, and those that begin behind are not.
    """
    given = {attribute.name: attribute for attribute in node.attribute}
    if "auto_pad" in given and given["auto_pad"].s.startswith(b"SAME"):
        given["ceil_mode"].i = 0  # one for each stride that begins, however it is rounded
        return
    kernel = given["kernel_shape"].ints
    rank = len(kernel)

    def numbers(name: str, otherwise: int, count: int) -> list[int]:
        return list(given[name].ints) if name in given else [otherwise] * count

    strides, dilations = numbers("strides", 1, rank), numbers("dilations", 1, rank)
    pads = numbers("pads", 0, 2 * rank)
    if "auto_pad" in given and given["auto_pad"].s == b"VALID":
        pads = [0] * (2 * rank)
    if not len(strides) == len(dilations) == len(pads) / 2 == rank:
        return  # which inference refuses
    behind = [
        min(after + stride, (size - 1) * dilation + 1) - 1
        for size, stride, dilation, after in zip(
            kernel, strides, dilations, pads[rank:], strict=True
        )
    ]
    kept = [attribute for attribute in node.attribute if attribute.name not in _CHANGED]
    kept.append(onnx.helper.make_attribute("pads", [*pads[:rank], *behind]))
    del node.attribute[:]
    node.attribute.extend(kept)
