"""ConvTranspose-11, for opset 10."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import element_type, known_rank
from onnx_kvtool.symbolic.dimensions import Dim

__all__ = ["lower_conv_transpose_11"]


def lower_conv_transpose_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write the pads that follow from `auto_pad` or `output_shape` in numbers.

        total = stride * (input - 1) + output_padding + (kernel - 1) * dilation + 1 - output

    SAME_UPPER has the smaller half of it in front, all else the larger one. With `auto_pad` the
    sizes of the input cancel out. Where the total is negative that much is added behind.

    Refuses unknown sizes of the input with `output_shape`, an unknown kernel, and more behind than
    an `output_padding` may be; with `auto_pad` anything behind, which onnxruntime leaves out.
    """
    view = NodeView(node, context.opset_of(node))
    data, weights = view.required("X"), view.required("W")
    dims, filters = (known_rank(v, "ConvTranspose", 11) for v in (data, weights))
    rank = len(dims) - 2

    def numbers(name: str, default: list[int]) -> list[int]:
        given = view.attribute(name)
        if given is None:
            return default
        if not isinstance(given, (list, tuple)) or len(given) != rank:
            raise MalformedNode("bad-attribute", f"`{name}` has {given}, expected {rank} numbers")
        return [int(number) for number in given]

    stride, dilation = numbers("strides", [1] * rank), numbers("dilations", [1] * rank)
    more = numbers("output_padding", [0] * rank)
    kernel = numbers("kernel_shape", [_known(dim, weights) for dim in filters[2:]])
    asked, upper = _asked(view, rank), view.string("auto_pad") == "SAME_UPPER"
    before, after = [], []
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        if asked is None:  # the output is the input times the stride
            total = more[axis] + extent - stride[axis]
        else:
            size = _known(dims[axis + 2], data)
            total = stride[axis] * (size - 1) + more[axis] + extent - asked[axis]
        if total < 0:
            more[axis] -= total
            if asked is None or more[axis] >= stride[axis]:
                text = "runtimes do not agree on results that are larger than what windows reach"
                raise Refusal("changed-meaning", text, lowest_opset=11)
            total = 0
        half = total // 2
        before.append(half if upper else total - half)
        after.append(total - before[-1])
    attributes: dict[str, AttributeValue] = {
        "dilations": dilation,
        "group": view.integer("group"),
        "kernel_shape": kernel,
        "output_padding": more,
        "pads": [*before, *after],
        "strides": stride,
    }
    dtype = element_type(data, "ConvTranspose", 11)
    return Replacement((em.op("ConvTranspose", *node.inputs, attributes=attributes, dtype=dtype),))


def _asked(view: NodeView, rank: int) -> list[int] | None:
    """Return `output_shape`, without batch and channels where it has them; None for none."""
    given = view.attribute("output_shape")
    if not given:
        return None
    if not isinstance(given, (list, tuple)) or len(given) not in (rank, rank + 2):
        raise MalformedNode("bad-attribute", f"`output_shape` is {given}, expected {rank} numbers")
    return [int(number) for number in given[-rank:]]


def _known(dim: Dim, value: ir.Value) -> int:
    if isinstance(dim, int):
        return dim
    raise Refusal(
        "unknown-dimension",
        f"the sizes of `{value.name}` are unknown, on which the pads depend",
        help="fix the sizes of the input with `--dim`",
        lowest_opset=11,
    )
