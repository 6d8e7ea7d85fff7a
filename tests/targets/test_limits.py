"""kvtool rewrites or refuses a node to which a limit applies, and keeps other nodes.

Nothing is run: `tests/compat` does that for releases that can be installed.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.targets.releases import releases
from tests.grids import each, part
from tests.targets import tinygrad_cases
from tests.targets.documented_cases import DOCUMENTED_CASES
from tests.targets.size_cases import INDEXED, INDEXED_BY, SIZE_CASES

HEAD = '<ir_version: 8, opset_import: ["": {opset}]>'

Case = tuple[str, str, int, str, str]
"""A limit, a release that has it, an opset, a model to which it applies, and one without it."""


def _recurrent(operator: str, more: str = "", lengths: str = "") -> str:
    """Return a recurrent layer of five steps, with another attribute, or lengths of sequences."""
    rows = {"LSTM": 8, "GRU": 6, "RNN": 2}[operator]
    return (
        f"g (float[5, 2, 3] x, float[1, {rows}, 3] w, float[1, {rows}, 2] r, int32[2] n) "
        f"=> (float[5, 1, 2, 2] z) {{ z = {operator} "
        f"<hidden_size = 2{', ' if more else ''}{more}> (x, w, r, , {lengths}) }}"
    )


CASES: list[Case] = [
    (
        "mod",
        "tensorrt@8.4",
        13,
        "g (int64[2, 3] x, int64[3] y) => (int64[2, 3] z) { z = Mod (x, y) }",
        "g (int64[2, 3] x, int64[3] y) => (int64[2, 3] z) { z = Div (x, y) }",
    ),
    (
        "trilu",
        "tensorrt@8.4",
        14,
        "g (float[3, 3] x) => (float[3, 3] z) { z = Trilu (x) }",
        "g (float[3, 3] x) => (float[3, 3] z) { z = Neg (x) }",
    ),
    (
        "layer-normalization",
        "tensorrt@8.4",
        17,
        "g (float[2, 3] x, float[3] s) => (float[2, 3] z) { z = LayerNormalization (x, s) }",
        "g (float[2, 3] x, float[3] s) => (float[2, 3] z) { z = Mul (x, s) }",
    ),
    (
        "layer-normalization-outputs",
        "tensorrt@8.6",
        17,
        (
            "g (float[2, 3] x, float[3] s) => (float[2, 3] z, float[2, 1] m) "
            "{ z, m = LayerNormalization (x, s) }"
        ),
        "g (float[2, 3] x, float[3] s) => (float[2, 3] z) { z = LayerNormalization (x, s) }",
    ),
    (
        "scatter-nd-reduction",
        "tensorrt@10.0",
        18,
        (
            "g (float[3] x, int64[2, 1] i, float[2] u) => (float[3] z) "
            '{ z = ScatterND <reduction: string = "add"> (x, i, u) }'
        ),
        "g (float[3] x, int64[2, 1] i, float[2] u) => (float[3] z) { z = ScatterND (x, i, u) }",
    ),
    (
        "squeeze-axes",
        "tensorrt@10.0",
        13,
        "g (float[1, 3] x, int64[1] a) => (float[3] z) { z = Squeeze (x, a) }",
        "g (float[1, 3] x) => (float[3] z) <int64[1] a = {0}> { z = Squeeze (x, a) }",
    ),
    (
        "unsqueeze-axes",
        "tensorrt@10.0",
        13,
        "g (float[3] x, int64[1] a) => (float[1, 3] z) { z = Unsqueeze (x, a) }",
        "g (float[3] x) => (float[1, 3] z) <int64[1] a = {0}> { z = Unsqueeze (x, a) }",
    ),
    (
        "kv-cache-update",
        "tensorrt@10.15",
        24,
        (
            "g (float[2, 5, 7] past, float[2, 1, 7] new, int64[2] at) => (float[2, 5, 7] z) "
            "{ z = TensorScatter <axis: int = 1> (past, new, at) }"
        ),
        (
            "g (float[2, 3, 5, 7] past, float[2, 3, 1, 7] new, int64[2] at) "
            "=> (float[2, 3, 5, 7] z) "
            "{ z = TensorScatter (past, new, at) }"
        ),
    ),
    (
        "attention-4d",
        "tensorrt@10.15",
        24,
        (
            "g (float[2, 4, 21] q, float[2, 5, 21] k, float[2, 5, 21] v) => (float[2, 4, 21] z) "
            "{ z = Attention <q_num_heads: int = 3, kv_num_heads: int = 3> (q, k, v) }"
        ),
        (
            "g (float[2, 3, 4, 7] q, float[2, 3, 5, 7] k, float[2, 3, 5, 7] v) "
            "=> (float[2, 3, 4, 7] z) { z = Attention (q, k, v) }"
        ),
    ),
    (
        "reduce-max-infinite",
        "openvino",
        24,
        (
            "g (float[2, 3, 5] x) => (float[3] z) <int64[2] a = {0, -1}> "
            "{ z = ReduceMax <keepdims: int = 0> (x, a) }"
        ),
        ("g (bool[2, 3] x) => (float[1, 1] z) { y = Cast <to: int = 1> (x)  z = ReduceMax (y) }"),
    ),
    *(
        (
            f"reduce-{word.lower()}-unbounded",
            runtime,
            13,
            (
                f"g (float16[2, 3, 5] x) => (float16[2, 3, 1] z) "
                f"{{ z = Reduce{word} <axes: ints = [-1]> (x) }}"
            ),
            f"g (int64[2, 3] x) => (int64[1, 1] z) {{ z = Reduce{word} (x) }}",
        )
        for word in ("Max", "Min")
        for runtime in ("tract", "opencv")
    ),
    (
        "reduce-min-infinite",
        "openvino",
        13,
        ("g (float[2, 3, 5] x) => (float[2, 3, 1] z) { z = ReduceMin <axes: ints = [-1]> (x) }"),
        "g (int64[2, 3] x) => (int64[1, 1] z) { z = ReduceMin (x) }",
    ),
    (
        "swish",
        "tensorrt@10.15",
        24,
        "g (float[2, 3] x) => (float[2, 3] z) { z = Swish (x) }",
        "g (float[2, 3] x) => (float[2, 3] z) { z = Sigmoid (x) }",
    ),
    (
        "pad-dynamic",
        "tract",
        18,
        "g (float[2, 3] x, int64[4] p) => (float[a, b] z) { z = Pad (x, p) }",
        "g (float[2, 3] x) => (float[4, 5] z) <int64[4] p = {1, 1, 1, 1}> { z = Pad (x, p) }",
    ),
    *DOCUMENTED_CASES,
    *((name, "tract", 18, affected, free) for name, affected, free in SIZE_CASES),
    (
        "cum-sum-axis",  # which the reference refuses, and onnxruntime takes
        "tract",
        18,
        "g (float[4, 3] x) => (float[4, 3] z) <int64[1] i = {1}> { z = CumSum (x, i) }",
        "g (float[4, 3] x) => (float[4, 3] z) <int64 i = {1}> { z = CumSum (x, i) }",
    ),
    (
        "mat-mul-constant-batches",
        "opencv",
        18,
        (
            "g (float[2, 2] x) => (float[2, 2, 1] z) <float[2, 2, 1] w = {1, 2, 3, 4}> "
            "{ z = MatMul (x, w) }"
        ),
        "g (float[2, 2] x) => (float[2, 1] z) <float[2, 1] w = {1, 2}> { z = MatMul (x, w) }",
    ),
    (
        "mod-float",
        "opencv",
        18,
        "g (float[3] x, float[3] y) => (float[3] z) { z = Mod <fmod: int = 1> (x, y) }",
        "g (int64[3] x, int64[3] y) => (int64[3] z) { z = Mod (x, y) }",
    ),
    (
        "dropout-mask",
        "opencv",
        18,
        "g (float[3] x) => (float[3] z, bool[3] m) { z, m = Dropout (x) }",
        "g (float[3] x) => (float[3] z) { z = Dropout (x) }",
    ),
    (
        "gather-nd-types",
        "opencv",
        18,
        "g (double[3] x) => (double[1] z) <int64[1, 1] i = {1}> { z = GatherND (x, i) }",
        "g (float[3] x) => (float[1] z) <int64[1, 1] i = {1}> { z = GatherND (x, i) }",
    ),
    (
        "gather-elements-types",
        "opencv",
        18,
        "g (double[3] x, int64[3] i) => (double[3] z) { z = GatherElements (x, i) }",
        "g (float[3] x, int64[3] i) => (float[3] z) { z = GatherElements (x, i) }",
    ),
    (
        "scatter-elements-types",
        "opencv",
        18,
        "g (double[3] x, int64[3] i) => (double[3] z) { z = ScatterElements (x, i, x) }",
        "g (float[3] x, int64[3] i) => (float[3] z) { z = ScatterElements (x, i, x) }",
    ),
    (
        "scatter-nd-types",
        "opencv",
        18,
        "g (double[3] x, int64[3, 1] i) => (double[3] z) { z = ScatterND (x, i, x) }",
        "g (bool[3] x, int64[3, 1] i) => (bool[3] z) { z = ScatterND (x, i, x) }",
    ),
    (
        "cum-sum-computed",
        "tract",
        18,
        (
            "g (float[3] x) => (int64[3] z) <int64 a = {0}> "
            "{ y = Cast <to = 7> (x)  z = CumSum (y, a) }"
        ),
        "g (float[3] x) => (float[3] z) <int64 a = {0}> { y = Neg (x)  z = CumSum (y, a) }",
    ),
    (
        "top-k-dynamic",
        "iree",
        18,
        (
            "g (float[n, 8] x) => (float[n, 2] z, int64[n, 2] i) <int64[1] k = {2}> "
            "{ z, i = TopK (x, k) }"
        ),
        (
            "g (float[5, 8] x) => (float[5, 2] z, int64[5, 2] i) <int64[1] k = {2}> "
            "{ z, i = TopK (x, k) }"
        ),
    ),
    (
        "gelu-tanh",
        "iree",
        20,
        'g (float[2, 3] x) => (float[2, 3] z) { z = Gelu <approximate: string = "tanh"> (x) }',
        "g (float[2, 3] x) => (float[2, 3] z) { z = Gelu (x) }",
    ),
    (
        "div-unsigned",
        "iree",
        18,
        "g (uint32[3] x, uint32[3] y) => (uint32[3] z) { z = Div (x, y) }",
        "g (int32[3] x, int32[3] y) => (int32[3] z) { z = Div (x, y) }",
    ),
    (
        "mod-unsigned",
        "iree",
        18,
        "g (uint8[3] x, uint8[3] y) => (uint8[3] z) { z = Mod (x, y) }",
        "g (int8[3] x, int8[3] y) => (int8[3] z) { z = Mod (x, y) }",
    ),
    (
        "clip-unsigned",
        "iree",
        18,
        "g (uint64[3] x, uint64 least) => (uint64[3] z) { z = Clip (x, least) }",
        "g (int64[3] x, int64 least) => (int64[3] z) { z = Clip (x, least) }",
    ),
    (
        "top-k-unsigned",
        "iree",
        18,
        ("g (uint8[5] x) => (uint8[2] z, int64[2] i) <int64[1] k = {2}> { z, i = TopK (x, k) }"),
        "g (int8[5] x) => (int8[2] z, int64[2] i) <int64[1] k = {2}> { z, i = TopK (x, k) }",
    ),
    (
        "abs-unsigned",
        "iree",
        18,
        "g (uint8[3] x) => (uint8[3] z) { z = Abs (x) }",
        "g (int8[3] x) => (int8[3] z) { z = Abs (x) }",
    ),
    (
        "scatter-nd-unsigned",
        "iree",
        18,
        (
            "g (uint8[3] x, int64[2, 1] i, uint8[2] u) => (uint8[3] z) "
            '{ z = ScatterND <reduction: string = "max"> (x, i, u) }'
        ),
        "g (uint8[3] x, int64[2, 1] i, uint8[2] u) => (uint8[3] z) { z = ScatterND (x, i, u) }",
    ),
    (
        "cast-to-unsigned",
        "iree",
        18,
        "g (float[3] x) => (uint32[3] z) { z = Cast <to = 12> (x) }",
        "g (uint32[3] x) => (int64[3] z) { z = Cast <to = 7> (x) }",
    ),
    (
        "conv-transpose-auto-pad",
        "iree",
        18,
        (
            "g (float[1, 1, 5] x, float[1, 1, 3] w) => (float[1, 1, 5] z) "
            '{ z = ConvTranspose <auto_pad = "SAME_UPPER"> (x, w) }'
        ),
        (
            "g (float[1, 1, 5] x, float[1, 1, 3] w) => (float[1, 1, 7] z) "
            '{ z = ConvTranspose <auto_pad = "VALID"> (x, w) }'
        ),
    ),
    (
        "conv-transpose-groups",
        "iree",
        18,
        (
            "g (float[1, 2, 5] x, float[2, 1, 3] w) => (float[1, 2, 7] z) "
            "{ z = ConvTranspose <group = 2> (x, w) }"
        ),
        (
            "g (float[1, 2, 5] x, float[2, 2, 3] w) => (float[1, 2, 7] z) "
            "{ z = ConvTranspose <group = 1> (x, w) }"
        ),
    ),
    (
        "mat-mul-integer-zero",
        "iree",
        18,
        "g (uint8[2, 3] x, uint8[3, 2] y) => (int32[2, 2] z) { z = MatMulInteger (x, y) }",
        (
            "g (uint8[2, 3] x, uint8[3, 2] y, uint8 a, uint8 b) => (int32[2, 2] z) "
            "{ z = MatMulInteger (x, y, a, b) }"
        ),
    ),
    (
        "softsign-18",
        "iree",
        18,
        "g (float[2, 3] x) => (float[2, 3] z) { z = Softsign (x) }",
        "g (float[2, 3] x) => (float[2, 3] z) { z = Softplus (x) }",
    ),
    (
        "group-normalization-18",
        "iree",
        18,
        (
            "g (float[1, 4, 5] x, float[2] s, float[2] b) => (float[1, 4, 5] z) "
            "{ z = GroupNormalization <num_groups = 2> (x, s, b) }"
        ),
        (
            "g (float[1, 4, 5] x, float[4] s, float[4] b) => (float[1, 4, 5] z) "
            "{ z = InstanceNormalization (x, s, b) }"
        ),
    ),
    *(
        (
            f"{op.lower()}-{name}",
            "iree",
            18,
            _recurrent(op, **{"lengths" if name == "lengths" else "more": text}),
            _recurrent(op),
        )
        for op, name, text in (
            ("GRU", "direction", 'direction = "reverse"'),
            ("GRU", "lengths", "n"),
            ("GRU", "clip", "clip = 0.5"),
            ("LSTM", "direction", 'direction = "reverse"'),
            ("LSTM", "lengths", "n"),
            ("LSTM", "clip", "clip = 0.5"),
            ("LSTM", "input-forget", "input_forget = 1"),
            ("RNN", "direction", 'direction = "bidirectional"'),
            ("RNN", "lengths", "n"),
            ("RNN", "clip", "clip = 0.5"),
        )
    ),
    (
        "lstm-peepholes",
        "iree",
        18,
        (
            "g (float[5, 2, 3] x, float[1, 8, 3] w, float[1, 8, 2] r, float[1, 6] p) "
            "=> (float[5, 1, 2, 2] z) { z = LSTM <hidden_size = 2> (x, w, r, , , , , p) }"
        ),
        _recurrent("LSTM"),
    ),
    (
        "mat-mul-vector",
        "iree",
        18,
        "g (float[3] x, float[2, 3, 5] y) => (float[2, 5] z) { z = MatMul (x, y) }",
        "g (float[3] x, float[3, 5] y) => (float[5] z) { z = MatMul (x, y) }",
    ),
    (
        "max-pool-storage-order",
        "iree",
        18,
        (
            "g (float[1, 1, 5, 5] x) => (float[1, 1, 4, 4] z, int64[1, 1, 4, 4] i) "
            "{ z, i = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x) }"
        ),
        (
            "g (float[1, 1, 5, 5] x) => (float[1, 1, 4, 4] z, int64[1, 1, 4, 4] i) "
            "{ z, i = MaxPool <kernel_shape = [2, 2]> (x) }"
        ),
    ),
    *(
        (
            name,
            "iree",
            18,
            (
                "g (float[1, 1, 6, 6] x) => (float[1, 1, a, b] z) "
                f"{{ z = LpPool <kernel_shape = [2, 2], {attribute}> (x) }}"
            ),
            (
                "g (float[1, 1, 6, 6] x) => (float[1, 1, 5, 5] z) "
                "{ z = LpPool <kernel_shape = [2, 2]> (x) }"
            ),
        )
        for name, attribute in (
            ("lp-pool-auto-pad", 'auto_pad = "SAME_LOWER"'),
            ("lp-pool-dilations", "dilations = [2, 2]"),
        )
    ),
    (
        "negative-log-likelihood-loss",
        "iree",
        18,
        (
            "g (float[2, 3, 5] x, int64[2, 5] t) => (float z) "
            "{ z = NegativeLogLikelihoodLoss (x, t) }"
        ),
        "g (float[2, 3, 5] x) => (float[2, 3, 5] z) { z = LogSoftmax (x) }",
    ),
    (
        "reshape-zeros",
        "iree",
        18,
        (
            "g (float[0, 3] x) => (float[3, 0] z) <int64[2] s = {3, 0}> "
            "{ z = Reshape <allowzero = 1> (x, s) }"
        ),
        (
            "g (float[2, 3] x) => (float[3, 2] z) <int64[2] s = {3, 2}> "
            "{ z = Reshape <allowzero = 1> (x, s) }"
        ),
    ),
    (
        "constants-CumSum.axis",
        "iree",
        18,
        "g (float[3] x, int64 a) => (float[3] z) { z = CumSum (x, a) }",
        "g (float[3] x) => (float[3] z) <int64 a = {0}> { z = CumSum (x, a) }",
    ),
    *(
        (
            f"resize-{name}",
            "iree",
            18,
            (
                "g (float[1, 1, 4, 4] x) => (float[1, 1, 6, 6] z) "
                f"<int64[{count}] s = {{{sizes}}}> {{ z = Resize <{attribute}> (x, , , s) }}"
            ),
            (
                "g (float[1, 1, 4, 4] x) => (float[1, 1, 6, 6] z) "
                '<int64[4] s = {1, 1, 6, 6}> { z = Resize <mode = "linear"> (x, , , s) }'
            ),
        )
        for name, attribute, count, sizes in (
            ("axes", "axes = [2, 3]", 2, "6, 6"),
            ("antialiased", 'mode = "linear", antialias = 1', 4, "1, 1, 6, 6"),
            ("outside", 'mode = "cubic", exclude_outside = 1', 4, "1, 1, 6, 6"),
            ("ratio", 'axes = [2, 3], keep_aspect_ratio_policy = "not_larger"', 2, "6, 6"),
            (
                "corners",
                'mode = "linear", coordinate_transformation_mode = "align_corners"',
                4,
                "1, 1, 6, 6",
            ),
        )
    ),
    (
        "scatter-elements-extremes",
        "iree",
        18,
        (
            "g (float[3] x, int64[2] i, float[2] u) => (float[3] z) "
            '{ z = ScatterElements <reduction = "min"> (x, i, u) }'
        ),
        (
            "g (float[3] x, int64[2] i, float[2] u) => (float[3] z) "
            '{ z = ScatterElements <reduction = "add"> (x, i, u) }'
        ),
    ),
    (
        "reverse-sequence-time",
        "iree",
        18,
        "g (float[4, 2] x, int64[2] n) => (float[4, 2] z) { z = ReverseSequence (x, n) }",
        (
            "g (float[2, 4] x, int64[2] n) => (float[2, 4] z) "
            "{ z = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n) }"
        ),
    ),
    (
        "conv-integer-zero",
        "iree",
        18,
        (
            "g (uint8[1, 1, 4] x, uint8[2, 1, 3] w, uint8 a, uint8[2] b) => (int32[1, 2, 2] z) "
            "{ z = ConvInteger (x, w, a, b) }"
        ),
        (
            "g (uint8[1, 1, 4] x, uint8[2, 1, 3] w, uint8 a) => (int32[1, 2, 2] z) "
            "{ z = ConvInteger (x, w, a) }"
        ),
    ),
    (
        "mod-double",
        "iree",
        18,
        "g (double[3] x, double[3] y) => (double[3] z) { z = Mod <fmod = 1> (x, y) }",
        "g (float[3] x, float[3] y) => (float[3] z) { z = Mod <fmod = 1> (x, y) }",
    ),
    (
        "q-linear-conv-channels",
        "iree",
        18,
        (
            "g (uint8[1, 1, 4] x, float s, uint8 o, int8[2, 1, 3] w, float[2] c, int8[2] n) "
            "=> (uint8[1, 2, 2] z) { z = QLinearConv (x, s, o, w, c, n, s, o) }"
        ),
        "g (float[1, 1, 4] x, float[2, 1, 3] w) => (float[1, 2, 2] z) { z = Conv (x, w) }",
    ),
    (
        "batch-normalization-9",
        "iree",
        14,
        (
            "g (float[2, 3] x, float[3] a, float[3] b, float[3] m, float[3] v) => (float[2, 3] z) "
            "{ z = BatchNormalization (x, a, b, m, v) }"
        ),
        "g (float[2, 3] x, float[3] a) => (float[2, 3] z) { z = Mul (x, a) }",
    ),
    (
        "greater-or-equal-12",
        "iree",
        13,
        "g (float[3] x, float[3] y) => (bool[3] z) { z = GreaterOrEqual (x, y) }",
        "g (float[3] x, float[3] y) => (bool[3] z) { z = Greater (x, y) }",
    ),
    (
        "lp-pool-11",
        "iree",
        17,
        "g (float[1, 1, 4] x) => (float[1, 1, 3] z) { z = LpPool <kernel_shape = [2]> (x) }",
        "g (float[1, 1, 4] x) => (float[1, 1, 3] z) { z = MaxPool <kernel_shape = [2]> (x) }",
    ),
    (
        "pad-wrap",
        "iree",
        19,
        (
            "g (float[2, 3] x) => (float[4, 5] z) <int64[4] p = {1, 1, 1, 1}> "
            '{ z = Pad <mode = "wrap"> (x, p) }'
        ),
        (
            "g (float[2, 3] x) => (float[4, 5] z) <int64[4] p = {1, 1, 1, 1}> "
            '{ z = Pad <mode = "edge"> (x, p) }'
        ),
    ),
    (
        "constants-Pad.pads",
        "iree",
        18,
        'g (float[2, 3] x, int64[4] p) => (float[4, 5] z) { z = Pad <mode = "edge"> (x, p) }',
        (
            "g (float[2, 3] x) => (float[4, 5] z) <int64[4] p = {1, 1, 1, 1}> "
            '{ z = Pad <mode = "edge"> (x, p) }'
        ),
    ),
    (
        "constants-Dropout.training_mode",
        "iree",
        18,
        "g (float[3] x, float r, bool t) => (float[3] z) { z = Dropout (x, r, t) }",
        "g (float[3] x) => (float[3] z) { z = Dropout (x) }",
    ),
    (
        "constants-ReduceSum.axes",
        "iree",
        18,
        "g (float[2, 3] x, int64[1] a) => (float[2, 1] z) { z = ReduceSum (x, a) }",
        "g (float[2, 3] x) => (float[2, 1] z) <int64[1] a = {1}> { z = ReduceSum (x, a) }",
    ),
    (
        "constants-ReduceMax.axes",
        "iree",
        18,
        ("g (float[2, 3] x, int64[1] a) => (float[2, 1] z) { b = Neg (a)  z = ReduceMax (x, b) }"),
        "g (float[2, 3] x) => (float[1, 1] z) { z = ReduceMax (x) }",
    ),
    (
        "constants-Slice.axes",
        "iree",
        18,
        (
            "g (float[5, 5] x, int64[1] a) => (float[3, 5] z) "
            "<int64[1] s = {1}, int64[1] e = {4}> { z = Slice (x, s, e, a) }"
        ),
        (
            "g (float[5, 5] x) => (float[3, 5] z) "
            "<int64[1] s = {1}, int64[1] e = {4}, int64[1] a = {0}> { z = Slice (x, s, e, a) }"
        ),
    ),
    (
        "lacks-Compress",
        "tract",
        18,
        "g (float[3] x, bool[3] c) => (float[n] z) { z = Compress (x, c) }",
        "g (float[3] x, int64[2] c) => (float[n] z) { z = Gather (x, c) }",
    ),
    (
        "errs-SpaceToDepth",
        "opencv",
        18,
        (
            "g (float[1, 1, 4, 4] x) => (float[1, 4, 2, 2] z) "
            "{ z = SpaceToDepth <blocksize: int = 2> (x) }"
        ),
        (
            "g (float[1, 4, 2, 2] x) => (float[1, 1, 4, 4] z) "
            "{ z = DepthToSpace <blocksize: int = 2> (x) }"
        ),
    ),
]


def written(target: str, opset: int, text: str) -> list[str] | None:
    """Return the operators of a model that was lowered for a release; None if it is refused."""
    model = onnx.parser.parse_model(HEAD.replace("{opset}", str(opset)) + text)
    try:
        lowered, _ = kv.lower(model, target=target, verify=False)
    except Refused as refused:
        codes = {one.code for one in refused.report.refused}
        return None if codes == {"target-limit"} else sorted(codes)
    return [node.op_type for node in lowered.graph.all_nodes()]


@part(2)
@pytest.mark.parametrize(
    ("name", "target", "opset", "affected", "free"), CASES, ids=lambda one: one
)
def test_a_node_with_the_limit_is_not_written_and_one_without_it_is(
    name: str, target: str, opset: int, affected: str, free: str
) -> None:
    found = written(target, opset, affected)
    assert found is None or not set(source(opset, affected)) & set(found)
    if found is None:
        model = onnx.parser.parse_model(HEAD.replace("{opset}", str(opset)) + affected)
        findings = kv.check(model, targets=[target])
        assert "error" in {one.severity for one in findings if one.code.startswith("KV3")}
    assert written(target, opset, free) == source(opset, free)


@pytest.mark.parametrize(
    ("dtype", "call"),
    [("uint8", "Div (x, y)"), ("uint16", "Div (x, y)"), ("uint16", "Clip (x, l)")],
)
def test_what_a_release_takes_for_signed_goes_through_a_type_that_is(dtype: str, call: str) -> None:
    text = f"g ({dtype}[3] x, {dtype}[3] y, {dtype} l) => ({dtype}[3] z) {{ z = {call} }}"
    operator = call.partition(" ")[0]
    assert written("iree", 18, text) == ["Cast", "Cast", operator, "Cast"]
    signed = text.replace("uint", "int")
    assert written("iree", 18, signed) == [operator]


@pytest.mark.long
def test_a_pool_whose_last_window_is_not_whole_is_padded_for_a_release_that_gets_it_wrong() -> None:
    text = (
        "g (float[1, 1, 5] x) => (float[1, 1, 3] z) "
        "{ z = AveragePool <kernel_shape = [2], strides = [2], ceil_mode = 1> (x) }"
    )
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text)
    for target, ceil in (("iree", 0), ("tract", 1)):
        lowered, _ = kv.lower(model, target=target)
        (pool,) = (node for node in lowered.graph if node.op_type == "AveragePool")
        assert pool.attributes.get_int("ceil_mode", 0) == ceil


def test_a_limit_of_an_old_version_spares_the_newer_one() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] z) { z = Softsign (x) }"
    assert written("iree", 22, text) == ["Softsign"]
    assert "Softsign" not in (written("iree", 21, text) or ())


def test_a_pool_is_padded_in_numbers_for_a_release_that_takes_no_other() -> None:
    text = (
        "g (float[1, 1, 6, 6] x) => (float[1, 1, 6, 6] z) "
        '{ z = MaxPool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER"> (x) }'
    )
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text)
    lowered, _ = kv.lower(model, target="iree")
    assert [node.op_type for node in lowered.graph] == ["MaxPool"]
    assert "auto_pad" not in lowered.graph.node(0).attributes


def test_a_pool_of_bytes_goes_through_a_type_that_a_release_takes() -> None:
    text = "g ({}[1, 1, 5] x) => ({}[1, 1, 4] z) {{ z = MaxPool <kernel_shape = [2]> (x) }}"
    assert written("iree", 18, text.format("uint8", "uint8")) == ["Cast", "MaxPool", "Cast"]
    assert written("iree", 18, text.format("int8", "int8")) == ["MaxPool"]


CODES = {
    "ConvInteger": "{0}[1, 2, 5, 5] x, {1}[3, 2, 3, 3] w) => (int32[1, 3, 3, 3] z",
    "MatMulInteger": "{0}[2, 3] x, {1}[3, 5] w) => (int32[2, 5] z",
    "QLinearConv": (
        "{0}[1, 2, 5, 5] x, float s, {0} p, {1}[3, 2, 3, 3] w, {1} q, {2} r) => ({2}[1, 3, 3, 3] z"
    ),
    "QLinearMatMul": "{0}[2, 3] x, float s, {0} p, {1}[3, 5] w, {1} q, {2} r) => ({2}[2, 5] z",
}


@pytest.mark.parametrize(
    ("operator", "release", "affected", "moves", "free"),
    [
        ("ConvInteger", "1.23.2", "uint8 int8", 1, "uint8 uint8"),
        ("ConvInteger", "1.15.1", "int8 int8", 2, "uint8 uint8"),
        ("ConvInteger", "1.23.2", "int8 uint8", 1, "uint8 uint8"),
        ("MatMulInteger", "1.15.1", "int8 uint8", 1, "uint8 int8"),
        ("MatMulInteger", "1.23.2", "int8 uint8", 1, "int8 int8"),
        ("QLinearConv", "1.32.0", "int8 int8 uint8", 4, "uint8 int8 uint8"),
        ("QLinearConv", "1.15.1", "uint8 uint8 int8", 2, "int8 int8 int8"),
        ("QLinearMatMul", "1.23.2", "uint8 int8 int8", 4, "uint8 uint8 uint8"),
        ("QLinearMatMul", "1.32.0", "int8 uint8 int8", 4, "int8 int8 int8"),
    ],
)
def test_signed_codes_that_a_release_does_not_multiply_are_given_as_unsigned_ones(
    operator: str, release: str, affected: str, moves: int, free: str
) -> None:
    def text(types: str) -> str:
        call = "(x, s, p, w, s, q, s, r)" if operator.startswith("Q") else "(x, w)"
        given = CODES[operator].format(*types.split())
        return f"g ({given}) {{ z = {operator} {call} }}"

    target = f"onnxruntime@{release}"
    found = written(target, 18, text(affected))
    assert found is not None
    assert sorted(found) == sorted([operator, *(["Cast", "Add", "Cast"] * moves)])
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text(affected))
    lowered, _ = kv.lower(model, target=target, verify=False)
    (node,) = (node for node in lowered.graph if node.op_type == operator)
    dtypes = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
    assert dtypes <= {ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.FLOAT}
    assert written(target, 18, text(free)) == [operator]


@pytest.mark.parametrize("dtype", ["bool", "float16"])
def test_what_a_release_moves_in_another_type_only_is_cast(dtype: str) -> None:
    text = f"g ({dtype}[3] x) => ({dtype}[1] z) <int64[1, 1] i = {{1}}> {{ z = GatherND (x, i) }}"
    assert written("opencv", 18, text) == ["Cast", "GatherND", "Cast"]
    assert written("onnxruntime", 18, text) == ["GatherND"]


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_what_is_gathered_is_cast_and_what_is_scattered_refused_for_a_type_that_a_release_lacks(
    dtype: str,
) -> None:
    text = f"g ({dtype}[3] x, int64[3] i, int64[3, 1] j) => ({dtype}[3] z) {{{{ z = {{}} }}}}"
    gathered = written("opencv", 18, text.format("GatherElements (x, i)"))
    assert gathered == ["Cast", "GatherElements", "Cast"]
    for call in ("ScatterElements (x, i, x)", "ScatterND (x, j, x)"):
        assert written("opencv", 18, text.format(call)) is None
        assert written("onnxruntime", 18, text.format(call)) is not None


@pytest.mark.parametrize(
    ("operator", "behind", "again", "free"),
    [
        ("Cast <to = 7>", "Mul", "int64", "Cast <to = 10>"),
        ("Erf", "Div", "float", "Sin"),
    ],
)
def test_what_a_release_spoils_behind_an_operator_is_set_apart(
    operator: str, behind: str, again: str, free: str
) -> None:
    text = "g (float[3] x, float h) => ({}[3] z) {{ y = {} (x, h)  z = {} (y) }}"
    name = operator.partition(" ")[0]
    found = written("opencv", 18, text.format(again, behind, operator))
    assert found == [behind, "Identity", name]
    assert written("opencv", 18, text.format(again, "Sub", operator)) == ["Sub", name]
    other = "float16" if "10" in free else "float"
    spared = written("opencv", 18, text.format(other, behind, free))
    assert spared == [behind, free.partition(" ")[0]]


@pytest.mark.parametrize("behind", ["Conv (x, w)", "Reshape (x, t)"])
def test_instance_normalization_is_set_apart_from_what_a_convolution_gives(behind: str) -> None:
    text = (
        "g (float[2, 3, n] x, float[3, 3, 1] w, float[3] s) => (float[2, 3, n] z) "
        "<int64[3] t = {{2, 3, -1}}> {{ y = {}  z = InstanceNormalization (y, s, s) }}"
    )
    name = behind.partition(" ")[0]
    given = text.format(behind)
    assert written("opencv", 18, given) == [name, "Identity", "InstanceNormalization"]
    assert written("onnxruntime", 18, given) == [name, "InstanceNormalization"]
    assert written("opencv", 18, text.format("Neg (x)")) == ["Neg", "InstanceNormalization"]


def test_what_a_branch_gives_without_elements_is_filled_where_a_constant_is_refused() -> None:
    text = (
        "g (bool c, float[a, 3] x) => (float[p, 3] z) { z = If (c) <"
        "then_branch = t () => (float[p, 3] y) { y = Constant <value = float[0, 3] {}> () }, "
        "else_branch = e () => (float[p, 3] w) { w = Neg (x) }> }"
    )
    assert written("openvino", 18, text) == ["If", "ConstantOfShape", "Neg"]
    assert written("onnxruntime", 18, text) == ["If", "Constant", "Neg"]


def source(opset: int, text: str) -> list[str]:
    model = onnx.parser.parse_model(HEAD.replace("{opset}", str(opset)) + text)
    return [node.op_type for node in ir.from_proto(model).graph.all_nodes()]


_SEPARATE = ("after-operator", "negative-indices", "no-value", "sizes-as-indices")
"""Conditions of which the operator stays, in another form."""


@pytest.mark.parametrize(
    ("operator", "updates"), [("GatherND", ""), ("ScatterND", ", u")], ids=["gather", "scatter"]
)
def test_indices_that_may_count_from_the_end_are_counted_from_the_front(
    operator: str, updates: str
) -> None:
    """For a runtime that takes no others; constants that do not it is given as they are."""
    text = (
        "g (float[{}, 3] x, int64[2, 1] i, float[2, 3] u) => (float[a, 3] z) "
        f"<int64[2, 1] c = {{{{1, 0}}}}> {{{{ z = {operator} (x, {{}}{updates}) }}}}"
    )
    turned = ["Less", "Add", "Where", operator]
    assert written("tract", 18, text.format(5, "i")) == turned
    assert written("tract", 18, text.format(5, "c")) == [operator]
    assert written("tract", 18, text.format("a", "i")) is None
    assert written("onnxruntime", 18, text.format(5, "i")) == [operator]


def test_indices_into_sizes_without_numbers_are_counted_from_the_front_of_its_shape() -> None:
    """Where a runtime takes that; in the types that it has, and by the sizes behind a batch."""
    text = (
        "g ({}[2, a, b] x, int64[2, 1, 1] i) => ({}[2, 1, b] z) "
        "{{ z = GatherND <batch_dims: int = 1> (x, i) }}"
    )
    turned = ["Shape", "Slice", "Less", "Add", "Where", "GatherND"]
    assert written("opencv", 18, text.format("float", "float")) == turned
    cast = ["Shape", "Slice", "Less", "Add", "Where", "Cast", "GatherND", "Cast"]
    assert written("opencv", 18, text.format("bool", "bool")) == cast
    text = "g (float[a, 3] x) => (float[3] z) <int64[1] i = {1}> { z = GatherND (x, i) }"
    assert written("opencv", 18, text) == ["GatherND"]
    text = "g (float[2, a, 3] x, int64[n] i) => (float[b, a, 3] z) { z = GatherND (x, i) }"
    assert written("opencv", 18, text) is None


@pytest.mark.parametrize("operator", INDEXED)
@pytest.mark.parametrize(
    ("start", "is_cast"),
    [
        pytest.param("p = Sub (b, a)", True, id="a difference of sizes"),
        pytest.param("c = Less (a, b)  p = Where (c, a, one)", True, id="one of two"),
        pytest.param("c = Less (a, b)  p = Where (c, k, one)", False, id="sizes are compared"),
        pytest.param("p = Abs (k)", False, id="an input"),
    ],
)
def test_indices_that_are_sizes_go_through_int32(operator: str, start: str, is_cast: bool) -> None:
    """For tract, which has their names when the node runs; elements of inputs are numbers."""
    text = INDEXED_BY.format(start=start, reads=INDEXED[operator])
    found = written("tract", 18, text)
    assert found is not None
    assert found.count("Cast") == 2 * is_cast, found
    assert "Cast" not in (written("onnxruntime", 18, text) or ())


def test_a_default_that_a_runtime_takes_for_another_type_is_written_out() -> None:
    text = "g (float[a, 3] x) => (float[a, 3] z) { t = Shape (x)  z = ConstantOfShape (t) }"
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text)
    for target, is_written in (("tract", True), ("onnxruntime", False)):
        lowered, _ = kv.lower(model, target=target, verify=False)
        (node,) = (one for one in lowered.graph if one.op_type == "ConstantOfShape")
        assert ("value" in node.attributes) == is_written


@pytest.mark.parametrize(
    ("start", "kept"), [(5, 4), (2**63 - 1, 4), (4, 4), (0, 0), (-1, -1), (-6, -6)]
)
def test_a_slice_that_goes_backward_begins_at_an_element(start: int, kept: int) -> None:
    text = (
        f"g (float[3, 5] x) => (float[2, n] z) "
        f"<int64[2] s = {{1, {start}}}, int64[2] e = {{3, -9}}, int64[2] a = {{0, 1}}, "
        "int64[2] t = {1, -2}> { z = Slice (x, s, e, a, t) }"
    )
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text)
    lowered, _ = kv.lower(model, target="iree")
    (node,) = (one for one in lowered.graph if one.op_type == "Slice")
    starts = ir.convenience.get_const_tensor(node.inputs[1])
    assert starts is not None
    assert starts.numpy().tolist() == [1, kept]


def test_a_slice_that_may_go_backward_from_behind_is_refused() -> None:
    text = (
        "g (float[5] x, int64[1] s) => (float[2] z) <int64[1] e = {{{}}}, int64[1] a = {{0}}, "
        "int64[1] t = {{{}}}> {{ z = Slice (x, s, e, a, t) }}"
    )
    assert written("iree", 18, text.format(0, -1)) is None
    assert written("iree", 18, text.format(5, 1)) is not None


@each(
    ("name", "opset", "text"),
    [(name, opset, affected) for name, target, opset, affected, _ in CASES if target == "iree"],
)
def test_check_reports_what_lower_does_not_leave(name: str, opset: int, text: str) -> None:
    model = onnx.parser.parse_model(HEAD.replace("{opset}", str(opset)) + text)
    found = kv.check(model, targets=["iree"], select=["KV3"])
    assert {finding.code for finding in found} & {"KV308", "KV310", "KV311"}, name


ELSEWHERE = {
    "slice-backward",
    "max-pool-unsigned",
    "max-pool-auto-pad",
    "average-pool-ceil",
}
"""Limits whose nodes are written in another form of the same operator, with tests of their own."""


def test_each_limit_of_a_runtime_that_has_no_other_test_is_among_them() -> None:
    tried = {name for name, *_ in (*CASES, *tinygrad_cases.CASES)} | ELSEWHERE
    for release in releases():
        if release.runtime in ("tensorrt", "tract", "tinygrad", "opencv", "iree"):
            # Limits that a lower opset remedies have cases in tests/rewrite/contrib.
            named = [one for one in release.limits if not (one.listed or one.lower_opset)]
            assert {limit.name for limit in named if limit.when not in _SEPARATE} <= tried


def test_a_refusal_that_fixed_sizes_would_spare_says_so() -> None:
    text = "g (float[2, s, w] x) => (float[2, n, 7] z) <int64[3] to = {2, -1, 7}> "
    model = onnx.parser.parse_model(
        HEAD.replace("{opset}", "18") + text + "{ z = Reshape (x, to) }"
    )
    with pytest.raises(Refused) as refused:
        kv.lower(model, target="tract", verify=False)
    assert "`--dim`" in (refused.value.report.refused[0].help or "")
    fixed, _ = kv.lower(model, target="tract", dims={"s": 5, "w": 7}, verify=False)
    assert fixed.graph.inputs[0].shape.is_static()


def test_functions_are_inlined_and_inner_shapes_left_out_for_a_runtime_that_wants_it() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 18, "own": 1]>
        g (float[n, 3] x) => (float[n, 3] z) <float[m, 3] y> { y = Neg (x)  z = own.twice (y) }
        <opset_import: ["": 18], domain: "own">
        twice (a) => (b) { b = Add (a, a) }
    """
    model, _ = kv.lower(onnx.parser.parse_model(text), target="tract", verify=False)
    assert [node.op_type for node in model.graph.all_nodes()] == ["Neg", "Add"]
    assert not model.functions
    assert all(value.shape is None for value in model.graph.node(0).outputs)
    kept, _ = kv.lower(onnx.parser.parse_model(text), target="onnxruntime", verify=False)
    assert kept.functions


def test_no_shape_of_an_update_is_declared_for_a_runtime_that_takes_it_for_a_fact() -> None:
    text = """
        g (float[n, 2, 5, 7] past, float[n, s, 14] new, int64[n] at)
        => (float[n, 2, 5, 7] z) <int64[4] to = {0, 0, 2, 7}> {
            split = Reshape (new, to)
            update = Transpose <perm = [0, 2, 1, 3]> (split)
            z = TensorScatter (past, update, at)
        }
    """
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "24") + text)
    model, _ = kv.lower(model, target="tract", verify=False)
    inner = [value for node in model.graph for value in node.outputs if not value.is_graph_output()]
    assert len(inner) > 2
    assert {value.shape for value in inner} == {None}


def test_a_runtime_that_broadcasts_unknown_sizes_wrongly_is_given_fixed_ones_only() -> None:
    text = "g (float[n, s] x, float[m, s] y) => (float[k, s] z) { z = Add (x, y) }"
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "18") + text)
    with pytest.raises(Refused) as refused:
        kv.lower(model, target="iree", dims={"s": 5}, verify=False)
    first = refused.value.report.refused[0]
    assert first.code == "symbolic-dimension"
    assert "iree 3.13.0 computes operators that broadcast" in first.message
    assert first.help == "give `--dim n=N --dim m=N`"
    sizes = {"n": 2, "m": 1, "s": 5}
    fixed, _ = kv.lower(model, target="iree", dims=sizes, verify=False)
    assert fixed.graph.outputs[0].shape == [2, 5]
    spared, _ = kv.lower(model, target="tract", verify=False)
    assert not spared.graph.inputs[0].shape.is_static()


def test_a_model_below_the_lowest_opset_of_a_release_is_refused() -> None:
    text = "g (float[3] x) => (float[3] z) { z = Neg (x) }"
    model = onnx.parser.parse_model(HEAD.replace("{opset}", "11") + text)
    with pytest.raises(Refused) as refused:
        kv.lower(model, target="iree", verify=False)
    assert refused.value.report.refused[0].code == "old-opset"
