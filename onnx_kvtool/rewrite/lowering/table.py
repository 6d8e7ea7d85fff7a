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

    Apply = Callable[[Rewritten, Emitter], ir.Value | Replacement | None]


@dataclass(frozen=True, slots=True)
class Lowering:
    """One rule.

    Attributes:
        since: The opset whose form of the operator the rule takes down: it applies to nodes written
            for it or a later one, and to targets below it.
        apply: Guard, then emit. Raises `Refusal` or `MalformedNode` before anything is edited;
            returns None where it does not apply and the schema's function body shall serve.
        removes: Whether the rule replaces the operator by others, so that it can be asked for
            although the target has the operator.
        reads: The oldest form of the operator that the rule reads; None for `since`.
    """

    name: str
    since: int
    apply: Apply
    removes: bool = False
    reads: int | None = None

    def applies(self, opset: int, target: int, forced: bool) -> bool:
        """Return whether the rule takes a node of `opset` to `target`."""
        oldest = self.since if self.reads is None else self.reads
        return opset >= oldest and (target < self.since or (forced and self.removes))


def lowering(
    apply: Apply,
    *,
    removes: bool = False,
    reads: int | None = None,
) -> Lowering:
    """Return the rule that a function called `lower_<name>_<opset>` applies, with options."""
    name, _, since = apply.__name__.removeprefix("lower_").rpartition("_")
    return Lowering(name, int(since), apply, removes, reads)


def by_operator(kind: str, lines: Iterable[tuple[str, Lowering | Apply]]) -> Mapping[str, Lowering]:
    """Return a table of rules, or of functions that are rules, each for the operators before it."""
    rules = [(ops, x if isinstance(x, Lowering) else lowering(x)) for ops, x in lines]
    return Table(kind, [(op, rule) for ops, rule in rules for op in ops.split()])


LOWERINGS: Mapping[str, Lowering] = by_operator(
    "lowering",
    [
        ("AffineGrid", lower_affine_grid_20),
        ("ArgMax ArgMin", lower_arg_max_min_12),
        (
            "Attention",
            Lowering("attention", 25, lower_attention_23_24_25, removes=True, reads=23),
        ),
        ("AveragePool MaxPool", lowering(lower_pool_22, reads=10)),
        ("BatchNormalization", lower_batch_normalization_14),
        ("BitCast", lower_bit_cast_26),
        ("BitShift", lower_bit_shift_28),
        ("BitwiseAnd BitwiseNot BitwiseOr BitwiseXor", lower_bitwise_18),
        ("BlackmanWindow HammingWindow HannWindow", lower_cosine_window_17),
        ("Clip", lower_clip_12),
        ("Col2Im", lowering(lower_col2im_18, removes=True)),
        ("Constant", lower_constant_12),
        ("CumProd", lower_cum_prod_26),
        ("DFT", lowering(lower_dft_20, reads=17)),
        ("DeformConv", lowering(lower_deform_conv_19, removes=True)),
        (
            "DequantizeLinear",
            Lowering("dequantize_linear", 25, lower_dequantize_linear, removes=True, reads=13),
        ),
        ("Dropout", lower_dropout_12),
        ("Einsum", lower_einsum_12),
        ("Equal", lower_equal_19),
        ("GRU LSTM RNN", lower_recurrent_14),
        ("GatherND", lower_gather_nd_12),
        ("GridSample", lowering(lower_grid_sample_20, removes=True, reads=16)),
        ("Hardmax LogSoftmax Softmax", lower_softmax_13),
        ("Identity", lower_identity_14),
        (
            "LayerNormalization",
            lowering(lower_layer_normalization_17, removes=True),
        ),
        ("LpPool", Lowering("pool", 18, lower_pool_22)),
        ("Max Min", lower_max_min_12),
        (
            "MeanVarianceNormalization",
            lowering(lower_mean_variance_normalization_13, removes=True, reads=9),
        ),
        (
            "MelWeightMatrix",
            lowering(lower_mel_weight_matrix_17, removes=True),
        ),
        ("Mod", lower_mod_28),
        ("OptionalGetElement", Lowering("optional", 18, lower_optional_get_element_18)),
        ("OptionalHasElement", Lowering("optional", 18, lower_optional_has_element_18)),
        ("Pad", lowering(lower_pad_19, reads=11)),
        ("Pow", lower_pow_12),
        (
            "QuantizeLinear",
            Lowering("quantize_linear", 25, lower_quantize_linear, removes=True, reads=13),
        ),
        ("RMSNormalization", lowering(lower_rms_normalization_23, removes=True)),
        (
            "ReduceL2 ReduceLogSumExp ReduceMean ReduceProd",
            Lowering("reduce", 18, lower_reduce_20, reads=18),
        ),
        ("ReduceMax ReduceMin", lowering(lower_reduce_20, removes=True, reads=13)),
        ("ReduceSum", Lowering("reduce", 13, lower_reduce_20)),
        ("Relu", lower_relu_14),
        ("Reshape", lower_reshape_14),
        ("Resize", lowering(lower_resize_19, reads=11)),
        ("RoiAlign", lower_roi_align_16),
        ("RotaryEmbedding", lowering(lower_rotary_embedding_23, removes=True)),
        ("STFT", lowering(lower_stft_17, removes=True)),
        (
            "ScatterElements ScatterND",
            Lowering("scatter_reduction", 18, lower_scatter_18, reads=16),
        ),
        ("Shape", lower_shape_15),
        ("Size", Lowering("size", 1, lower_size, removes=True)),
        ("Split", lowering(lower_split_18, removes=True, reads=13)),
        ("Squeeze", lower_squeeze_13),
        ("TensorScatter", lowering(lower_tensor_scatter_24, removes=True)),
        ("Trilu", lower_trilu_14),
        ("Unsqueeze", lower_unsqueeze_13),
    ],
)
