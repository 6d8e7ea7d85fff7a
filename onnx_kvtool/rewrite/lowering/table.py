"""The table of lowerings: the rule of each operator, and its opset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_kvtool.core.table import Table
from onnx_kvtool.rewrite.lowering.arithmetic import (
    lower_bit_cast_26,
    lower_bit_shift_28,
    lower_bitwise_18,
    lower_clip_12,
    lower_cum_prod_26,
    lower_equal_19,
    lower_max_min_12,
    lower_mod_28,
    lower_pow_12,
    lower_relu_14,
)
from onnx_kvtool.rewrite.lowering.attention import lower_attention_23_24_25
from onnx_kvtool.rewrite.lowering.col2im import lower_col2im_18
from onnx_kvtool.rewrite.lowering.einsum import lower_einsum_12
from onnx_kvtool.rewrite.lowering.grid_sample import lower_affine_grid_20, lower_grid_sample_20
from onnx_kvtool.rewrite.lowering.normalization import (
    lower_batch_normalization_14,
    lower_dropout_12,
    lower_layer_normalization_17,
    lower_mean_variance_normalization_13,
    lower_rms_normalization_23,
)
from onnx_kvtool.rewrite.lowering.optional import (
    lower_optional_get_element_18,
    lower_optional_has_element_18,
)
from onnx_kvtool.rewrite.lowering.pool import lower_pool_22
from onnx_kvtool.rewrite.lowering.quantize import lower_dequantize_linear, lower_quantize_linear
from onnx_kvtool.rewrite.lowering.recurrent import lower_recurrent_14
from onnx_kvtool.rewrite.lowering.reduce import (
    lower_arg_max_min_12,
    lower_reduce_20,
    lower_softmax_13,
)
from onnx_kvtool.rewrite.lowering.reshape import (
    lower_constant_12,
    lower_identity_14,
    lower_reshape_14,
    lower_shape_15,
    lower_size,
    lower_squeeze_13,
    lower_unsqueeze_13,
)
from onnx_kvtool.rewrite.lowering.resize import lower_resize_19
from onnx_kvtool.rewrite.lowering.roi_align import lower_deform_conv_19, lower_roi_align_16
from onnx_kvtool.rewrite.lowering.rotary_embedding import lower_rotary_embedding_23
from onnx_kvtool.rewrite.lowering.scatter import lower_scatter_18
from onnx_kvtool.rewrite.lowering.signal import (
    lower_cosine_window_17,
    lower_dft_20,
    lower_mel_weight_matrix_17,
    lower_stft_17,
)
from onnx_kvtool.rewrite.lowering.slicing import (
    lower_gather_nd_12,
    lower_pad_19,
    lower_split_18,
    lower_trilu_14,
)
from onnx_kvtool.rewrite.lowering.tensor_scatter import lower_tensor_scatter_24

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.emit.emitter import Emitter, Replacement
    from onnx_kvtool.rewrite.engine.rule import Rewritten


@dataclass(frozen=True, slots=True)
class Lowering:
    """One rule.

    Attributes:
        name: Its name in the report.
        since: The opset whose form of the operator the rule takes down: it applies to nodes
            written for it or a later one, and to targets below it.
        apply: Guard, then emit. Raises `Refusal` or `MalformedNode` before anything is edited;
            returns None where it does not apply and the schema's function body shall serve.
        removes: Whether the rule replaces the operator by others, so that it can be asked for
            although the target has the operator.
        reads: The oldest form of the operator that the rule reads; None for `since`.
    """

    name: str
    since: int
    apply: Callable[[Rewritten, Emitter], ir.Value | Replacement | None]
    removes: bool = False
    reads: int | None = None

    def applies(self, opset: int, target: int, forced: bool) -> bool:
        """Return whether the rule takes a node of `opset` to `target`.

        Args:
            opset: What the node was written for.
            target: What it shall be legal at.
            forced: Whether the caller wants the operator gone although the target has it.
        """
        oldest = self.since if self.reads is None else self.reads
        return opset >= oldest and (target < self.since or (forced and self.removes))


def by_operator(kind: str, lines: Iterable[tuple[str, Lowering]]) -> Mapping[str, Lowering]:
    """Return a table of rules, each for the operators before it."""
    return Table(kind, [(op, rule) for ops, rule in lines for op in ops.split()])


LOWERINGS: Mapping[str, Lowering] = by_operator(
    "lowering",
    [
        ("AffineGrid", Lowering("affine_grid", 20, lower_affine_grid_20)),
        ("ArgMax ArgMin", Lowering("arg_max_min", 12, lower_arg_max_min_12)),
        (
            "Attention",
            Lowering("attention", 25, lower_attention_23_24_25, removes=True, reads=23),
        ),
        ("AveragePool MaxPool", Lowering("pool", 22, lower_pool_22, reads=10)),
        ("BatchNormalization", Lowering("batch_normalization", 14, lower_batch_normalization_14)),
        ("BitCast", Lowering("bit_cast", 26, lower_bit_cast_26)),
        ("BitShift", Lowering("bit_shift", 28, lower_bit_shift_28)),
        ("BitwiseAnd BitwiseNot BitwiseOr BitwiseXor", Lowering("bitwise", 18, lower_bitwise_18)),
        (
            "BlackmanWindow HammingWindow HannWindow",
            Lowering("cosine_window", 17, lower_cosine_window_17),
        ),
        ("Clip", Lowering("clip", 12, lower_clip_12)),
        ("Col2Im", Lowering("col2im", 18, lower_col2im_18, removes=True)),
        ("Constant", Lowering("constant", 12, lower_constant_12)),
        ("CumProd", Lowering("cum_prod", 26, lower_cum_prod_26)),
        ("DFT", Lowering("dft", 20, lower_dft_20, reads=17)),
        ("DeformConv", Lowering("deform_conv", 19, lower_deform_conv_19, removes=True)),
        (
            "DequantizeLinear",
            Lowering("dequantize_linear", 25, lower_dequantize_linear, removes=True, reads=13),
        ),
        ("Dropout", Lowering("dropout", 12, lower_dropout_12)),
        ("Einsum", Lowering("einsum", 12, lower_einsum_12)),
        ("Equal", Lowering("equal", 19, lower_equal_19)),
        ("GRU LSTM RNN", Lowering("recurrent", 14, lower_recurrent_14)),
        ("GatherND", Lowering("gather_nd", 12, lower_gather_nd_12)),
        ("GridSample", Lowering("grid_sample", 20, lower_grid_sample_20, removes=True, reads=16)),
        ("Hardmax LogSoftmax Softmax", Lowering("softmax", 13, lower_softmax_13)),
        ("Identity", Lowering("identity", 14, lower_identity_14)),
        (
            "LayerNormalization",
            Lowering("layer_normalization", 17, lower_layer_normalization_17, removes=True),
        ),
        ("LpPool", Lowering("pool", 18, lower_pool_22)),
        ("Max Min", Lowering("max_min", 12, lower_max_min_12)),
        (
            "MeanVarianceNormalization",
            Lowering(
                "mean_variance_normalization", 13, lower_mean_variance_normalization_13, True, 9
            ),
        ),
        (
            "MelWeightMatrix",
            Lowering("mel_weight_matrix", 17, lower_mel_weight_matrix_17, removes=True),
        ),
        ("Mod", Lowering("mod", 28, lower_mod_28)),
        ("OptionalGetElement", Lowering("optional", 18, lower_optional_get_element_18)),
        ("OptionalHasElement", Lowering("optional", 18, lower_optional_has_element_18)),
        ("Pad", Lowering("pad", 19, lower_pad_19, reads=11)),
        ("Pow", Lowering("pow", 12, lower_pow_12)),
        (
            "QuantizeLinear",
            Lowering("quantize_linear", 25, lower_quantize_linear, removes=True, reads=13),
        ),
        ("RMSNormalization", Lowering("rms_normalization", 23, lower_rms_normalization_23, True)),
        (
            "ReduceL2 ReduceLogSumExp ReduceMean ReduceProd",
            Lowering("reduce", 18, lower_reduce_20, reads=18),
        ),
        ("ReduceMax ReduceMin", Lowering("reduce", 20, lower_reduce_20, removes=True, reads=13)),
        ("ReduceSum", Lowering("reduce", 13, lower_reduce_20)),
        ("Relu", Lowering("relu", 14, lower_relu_14)),
        ("Reshape", Lowering("reshape", 14, lower_reshape_14)),
        ("Resize", Lowering("resize", 19, lower_resize_19, reads=11)),
        ("RoiAlign", Lowering("roi_align", 16, lower_roi_align_16)),
        ("RotaryEmbedding", Lowering("rotary_embedding", 23, lower_rotary_embedding_23, True)),
        ("STFT", Lowering("stft", 17, lower_stft_17, removes=True)),
        (
            "ScatterElements ScatterND",
            Lowering("scatter_reduction", 18, lower_scatter_18, reads=16),
        ),
        ("Shape", Lowering("shape", 15, lower_shape_15)),
        ("Size", Lowering("size", 1, lower_size, removes=True)),
        ("Split", Lowering("split", 18, lower_split_18, removes=True, reads=13)),
        ("Squeeze", Lowering("squeeze", 13, lower_squeeze_13)),
        ("TensorScatter", Lowering("tensor_scatter", 24, lower_tensor_scatter_24, removes=True)),
        ("Trilu", Lowering("trilu", 14, lower_trilu_14)),
        ("Unsqueeze", Lowering("unsqueeze", 13, lower_unsqueeze_13)),
    ],
)
