"""Which strings an attribute takes.

Schemas say so in prose only. The lists are those of the descriptions of onnx 1.23.2, all versions
of each operator together; when a value came later than its attribute is in `changes.VALUE_LIMITS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.core.table import Table

__all__ = ["STRINGS", "unlisted"]

_PADDING = frozenset({"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"})
_DIRECTIONS = frozenset({"forward", "reverse", "bidirectional"})
_REDUCTIONS = frozenset({"none", "add", "mul", "max", "min"})
_LOSS = frozenset({"none", "sum", "mean"})
_ROUNDING = frozenset({"up", "down", "nearest"})

STRINGS: Mapping[tuple[str, str], frozenset[str]] = Table(
    "attribute with listed strings",
    [
        *(
            ((operator, "auto_pad"), _PADDING)
            for operator in (
                "AveragePool",
                "Conv",
                "ConvInteger",
                "ConvTranspose",
                "LpPool",
                "MaxPool",
                "QLinearConv",
            )
        ),
        (("BitShift", "direction"), frozenset({"LEFT", "RIGHT"})),
        (("Cast", "round_mode"), _ROUNDING),
        (("CastLike", "round_mode"), _ROUNDING),
        (("CausalConvWithState", "activation"), frozenset({"none", "silu", "swish"})),
        (("DepthToSpace", "mode"), frozenset({"DCR", "CRD"})),
        (("GRU", "direction"), _DIRECTIONS),
        (("Gelu", "approximate"), frozenset({"none", "tanh"})),
        (
            ("GridSample", "mode"),
            frozenset({"linear", "nearest", "cubic", "bilinear", "bicubic"}),
        ),
        (("GridSample", "padding_mode"), frozenset({"zeros", "border", "reflection"})),
        (("ImageDecoder", "pixel_format"), frozenset({"RGB", "BGR", "Grayscale"})),
        (("LSTM", "direction"), _DIRECTIONS),
        (
            ("LinearAttention", "update_rule"),
            frozenset({"linear", "gated", "delta", "gated_delta"}),
        ),
        (("NegativeLogLikelihoodLoss", "reduction"), _LOSS),
        (("Pad", "mode"), frozenset({"constant", "reflect", "edge", "wrap"})),
        (("RNN", "direction"), _DIRECTIONS),
        (
            ("Resize", "coordinate_transformation_mode"),
            frozenset(
                {
                    "half_pixel",
                    "half_pixel_symmetric",
                    "pytorch_half_pixel",
                    "align_corners",
                    "asymmetric",
                    "tf_crop_and_resize",
                    "tf_half_pixel_for_nn",
                }
            ),
        ),
        (
            ("Resize", "keep_aspect_ratio_policy"),
            frozenset({"stretch", "not_larger", "not_smaller"}),
        ),
        (("Resize", "mode"), frozenset({"nearest", "linear", "cubic"})),
        (
            ("Resize", "nearest_mode"),
            frozenset({"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}),
        ),
        (("RoiAlign", "mode"), frozenset({"avg", "max"})),
        (
            ("RoiAlign", "coordinate_transformation_mode"),
            frozenset({"half_pixel", "output_half_pixel"}),
        ),
        (("ScatterElements", "reduction"), _REDUCTIONS),
        (("ScatterND", "reduction"), _REDUCTIONS),
        (("SoftmaxCrossEntropyLoss", "reduction"), _LOSS),
        (("SpaceToDepth", "mode"), frozenset({"DCR", "CRD"})),
        (("StringNormalizer", "case_change_action"), frozenset({"NONE", "LOWER", "UPPER"})),
        (("TensorScatter", "mode"), frozenset({"linear", "circular"})),
        (("TfIdfVectorizer", "mode"), frozenset({"TF", "IDF", "TFIDF"})),
        (("Upsample", "mode"), frozenset({"nearest", "linear", "bilinear"})),
    ],
)
"""The strings of an attribute, by operator of the default domain and name of the attribute."""


def unlisted(node: ir.Node) -> Iterator[tuple[str, str]]:
    """Yield each attribute of a node, with its value, whose string is none of those in `STRINGS`.

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
