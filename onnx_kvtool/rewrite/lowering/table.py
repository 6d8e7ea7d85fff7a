"""The table of lowerings: the rule of each operator, and its opset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_kvtool.core.tables import Table
from onnx_kvtool.rewrite.lowering import (
    arithmetic,
    attention,
    col2im,
    einsum,
    grid_sample,
    normalization,
    optional,
    pool,
    quantize,
    recurrent,
    reduce,
    reshape,
    resize,
    roi_align,
    rotary_embedding,
    scatter,
    signal,
    slicing,
    tensor_scatter,
)

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
        ("AffineGrid", grid_sample.lower_affine_grid_20),
        ("ArgMax ArgMin", reduce.lower_arg_max_min_12),
        (
            "Attention",
            lowering(attention.lower_attention_25, removes=True, reads=23),
        ),
        ("AveragePool MaxPool", lowering(pool.lower_pool_22, reads=10)),
        ("BatchNormalization", normalization.lower_batch_normalization_14),
        ("BitCast", arithmetic.lower_bit_cast_26),
        ("BitShift", arithmetic.lower_bit_shift_28),
        ("BitwiseAnd BitwiseNot BitwiseOr BitwiseXor", arithmetic.lower_bitwise_18),
        ("BlackmanWindow HammingWindow HannWindow", signal.lower_cosine_window_17),
        ("Clip", arithmetic.lower_clip_12),
        ("Col2Im", lowering(col2im.lower_col2im_18, removes=True)),
        ("Constant", reshape.lower_constant_12),
        ("CumProd", arithmetic.lower_cum_prod_26),
        ("DFT", lowering(signal.lower_dft_20, reads=17)),
        ("DeformConv", lowering(roi_align.lower_deform_conv_19, removes=True)),
        (
            "DequantizeLinear",
            lowering(quantize.lower_dequantize_linear_25, removes=True, reads=13),
        ),
        ("Dropout", normalization.lower_dropout_12),
        ("Einsum", einsum.lower_einsum_12),
        ("Equal", arithmetic.lower_equal_19),
        ("GRU LSTM RNN", recurrent.lower_recurrent_14),
        ("GatherND", slicing.lower_gather_nd_12),
        ("GridSample", lowering(grid_sample.lower_grid_sample_20, removes=True, reads=16)),
        ("Hardmax LogSoftmax Softmax", reduce.lower_softmax_13),
        ("Identity", reshape.lower_identity_14),
        (
            "LayerNormalization",
            lowering(normalization.lower_layer_normalization_17, removes=True),
        ),
        ("LpPool", Lowering("pool", 18, pool.lower_pool_22)),
        ("Max Min", arithmetic.lower_max_min_12),
        (
            "MeanVarianceNormalization",
            lowering(normalization.lower_mean_variance_normalization_13, removes=True, reads=9),
        ),
        (
            "MelWeightMatrix",
            lowering(signal.lower_mel_weight_matrix_17, removes=True),
        ),
        ("Mod", arithmetic.lower_mod_28),
        ("OptionalGetElement OptionalHasElement", optional.lower_optional_18),
        ("Pad", lowering(slicing.lower_pad_19, reads=11)),
        ("Pow", arithmetic.lower_pow_12),
        (
            "QuantizeLinear",
            lowering(quantize.lower_quantize_linear_25, removes=True, reads=13),
        ),
        ("RMSNormalization", lowering(normalization.lower_rms_normalization_23, removes=True)),
        (
            "ReduceL2 ReduceLogSumExp ReduceMean ReduceProd",
            Lowering("reduce", 18, reduce.lower_reduce_20),
        ),
        ("ReduceMax ReduceMin", lowering(reduce.lower_reduce_20, removes=True, reads=13)),
        ("ReduceSum", Lowering("reduce", 13, reduce.lower_reduce_20)),
        ("Relu", arithmetic.lower_relu_14),
        ("Reshape", reshape.lower_reshape_14),
        ("Resize", lowering(resize.lower_resize_19, reads=11)),
        ("RoiAlign", roi_align.lower_roi_align_16),
        ("RotaryEmbedding", lowering(rotary_embedding.lower_rotary_embedding_23, removes=True)),
        ("STFT", lowering(signal.lower_stft_17, removes=True)),
        (
            "ScatterElements ScatterND",
            lowering(scatter.lower_scatter_reduction_18, reads=16),
        ),
        ("Shape", reshape.lower_shape_15),
        ("Size", lowering(reshape.lower_size_1, removes=True)),
        ("Split", lowering(slicing.lower_split_18, removes=True, reads=13)),
        ("Squeeze", reshape.lower_squeeze_13),
        ("TensorScatter", lowering(tensor_scatter.lower_tensor_scatter_24, removes=True)),
        ("Trilu", slicing.lower_trilu_14),
        ("Unsqueeze", reshape.lower_unsqueeze_13),
    ],
)
