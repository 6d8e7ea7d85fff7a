"""Pairs of models: a limit of tract on sizes applies to the first one alone."""

from __future__ import annotations

__all__ = ["INDEXED", "SIZE_CASES"]

INDEXED = {
    "ScatterND": "i = Reshape (p, pair)  z = ScatterND (x, i, u)",
    "ScatterElements": "i = Expand (p, wide)  z = ScatterElements <axis: int = 0> (x, i, u)",
    "GatherElements": "i = Expand (p, wide)  z = GatherElements <axis: int = 0> (x, i)",
    "OneHot": "i = Squeeze (p)  z = OneHot (i, five, two)",
}
"""What reads indices that are computed from `p`, of one row of five."""

INDEXED_BY = (
    "g (float[5, 3] x, float[q, 2] y, float[r, 2] w, int64[1] k) => (float[m, n] z) "
    "<int64[2] pair = {{1, 1}}, int64[2] wide = {{1, 3}}, float[1, 3] u = {{2, 3, 4}}, "
    "int64 five = {{5}}, float[2] two = {{0, 1}}, int64[1] one = {{1}}> {{ "
    "a = Shape <start: int = 0, end: int = 1> (y)  b = Shape <start: int = 0, end: int = 1> (w) "
    "{start}  {reads} }}"
)
"""A graph around it; `p` is `start`, of the sizes `a` and `b` and the input `k`."""

SIZE_CASES: list[tuple[str, str, str]] = [
    (
        "reshape-undivided",
        (
            "g (float[2, s, w] x) => (float[2, n, 7] z) <int64[3] to = {2, -1, 7}> "
            "{ z = Reshape (x, to) }"
        ),
        (
            "g (float[2, s, 7] x) => (float[2, n, 7] z) <int64[3] to = {2, -1, 7}> "
            "{ z = Reshape (x, to) }"
        ),
    ),
    (
        "reshape-undivided",
        (
            "g (float[a, b, 4] x, float[n] y) => (float[n, b, 4] z) <int64[1] f = {4}> "
            "{ p = Shape (y)  q = Shape <start: int = 1, end: int = 2> (x) "
            "s = Concat <axis: int = 0> (p, q, f)  z = Reshape (x, s) }"
        ),
        (
            "g (float[a, b, 4] x) => (float[a, n] z) <int64[1] f = {-1}> "
            "{ p = Shape <start: int = 0, end: int = 1> (x) "
            "s = Concat <axis: int = 0> (p, f)  z = Reshape (x, s) }"
        ),
    ),
    (
        "reshape-undivided",
        (
            "g (float[a, b, 4] x, float[a, c, 4] y) => (float[n, m, 4] z) "
            "<int64[1] o = {-1}, int64[1] f = {4}> "
            "{ w = Concat <axis: int = 1> (x, y)  p = Shape <start: int = 1, end: int = 2> (w) "
            "s = Concat <axis: int = 0> (o, p, f)  z = Reshape (w, s) }"
        ),
        (
            "g (float[a, b, 4] x, float[a, c, 4] y) => (float[a, n] z) <int64[2] s = {0, -1}> "
            "{ w = Concat <axis: int = 1> (x, y)  z = Reshape (w, s) }"
        ),
    ),
    (
        "reshape-values",
        "g (float[2, 6] x, int64[2] s) => (float[a, b] z) { z = Reshape (x, s) }",
        "g (float[2, 6] x) => (float[3, 4] z) <int64[2] s = {3, 4}> { z = Reshape (x, s) }",
    ),
    (
        "constant-of-shape-values",
        "g (int64[2] s) => (float[a, b] z) { z = ConstantOfShape (s) }",
        (
            "g (float[a, 3] x) => (float[a, 3] z) "
            "{ s = Shape (x)  z = ConstantOfShape <value: tensor = float[1] {2}> (s) }"
        ),
    ),
    (
        "expand-values",
        "g (float[1, 3] x, int64[2] s) => (float[a, b] z) { z = Expand (x, s) }",
        "g (float[1, 3] x, float[a, 3] y) => (float[a, 3] z) { s = Shape (y)  z = Expand (x, s) }",
    ),
    (
        "tile-values",
        "g (float[1, 3] x, int64[2] s) => (float[a, b] z) { z = Tile (x, s) }",
        "g (float[1, 3] x, float[a, 2] y) => (float[a, 6] z) { s = Shape (y)  z = Tile (x, s) }",
    ),
    (
        "slice-start-values",
        (
            "g (float[2, 6] x, int64[1] o) => (float[2, n] z) <int64[1] e = {6}, int64[1] a = {1}> "
            "{ z = Slice (x, o, e, a) }"
        ),
        (
            "g (float[2, 6] x, float[c] y) => (float[2, n] z) <int64[1] e = {6}, int64[1] a = {1}> "
            "{ o = Shape (y)  z = Slice (x, o, e, a) }"
        ),
    ),
    (
        "slice-end-values",
        (
            "g (float[2, 6] x, int64[1] e) => (float[2, n] z) <int64[1] o = {0}, int64[1] a = {1}> "
            "{ z = Slice (x, o, e, a) }"
        ),
        (
            "g (float[2, 6] x, float[c] y) => (float[2, n] z) <int64[1] o = {0}, int64[1] a = {1}> "
            "{ e = Shape (y)  z = Slice (x, o, e, a) }"
        ),
    ),
    (
        "slice-bound-may-exceed-size",
        (
            "g (float[2, b] x) => (float[2, n] z) <int64[1] o = {0}, int64[1] e = {4}, "
            "int64[1] a = {1}> { z = Slice (x, o, e, a) }"
        ),
        (
            "g (float[2, b] x) => (float[2, 1] z) <int64[1] o = {-1}, "
            "int64[1] e = {9223372036854775807}, int64[1] a = {1}> { z = Slice (x, o, e, a) }"
        ),
    ),
    (
        "constants-Split.split",
        "g (float[6] x, int64[2] s) => (float[a] y, float[b] z) { y, z = Split (x, s) }",
        (
            "g (float[6] x) => (float[2] y, float[4] z) <int64[2] s = {2, 4}> "
            "{ y, z = Split (x, s) }"
        ),
    ),
    (
        "constants-OneHot.depth",
        "g (int64[a] x, int64 d, float[2] v) => (float[a, n] z) { z = OneHot (x, d, v) }",
        (
            "g (int64[a] x) => (float[a, 3] z) <int64 d = {3}, float[2] v = {0, 1}> "
            "{ z = OneHot (x, d, v) }"
        ),
    ),
    *(
        (
            f"constants-{kind}Linear.{place}",
            (
                f"g ({given}[2, 3] x, {given_type} o) => ({result}[2, 3] z) "
                f"<{kept_type} k = {{2}}> {{ z = {kind}Linear (x, {order}) }}"
            ),
            (
                f"g ({given}[2, 3] x) => ({result}[2, 3] z) "
                f"<{given_type} o = {{1}}, {kept_type} k = {{2}}> "
                f"{{ z = {kind}Linear (x, {order}) }}"
            ),
        )
        for kind, letter, given, result in (
            ("Dequantize", "x", "uint8", "float"),
            ("Quantize", "y", "float", "uint8"),
        )
        for place, order, given_type, kept_type in (
            (f"{letter}_scale", "o, k", "float", "uint8"),
            (f"{letter}_zero_point", "k, o", "uint8", "float"),
        )
    ),
    (
        "constants-CumSum.axis",
        "g (float[4, 3] x, int64 i) => (float[4, 3] z) { z = CumSum (x, i) }",
        "g (float[4, 3] x) => (float[4, 3] z) <int64 i = {1}> { z = CumSum (x, i) }",
    ),
    (
        "trilu-no-scalar",
        "g (float[4, 3] x) => (float[4, 3] z) <int64[1] i = {1}> { z = Trilu (x, i) }",
        "g (float[4, 3] x) => (float[4, 3] z) <int64 i = {1}> { z = Trilu (x, i) }",
    ),
    (
        "trilu-computed",
        "g (float[4, 3] x, float[c] y) => (float[4, 3] z) { i = Size (y)  z = Trilu (x, i) }",
        "g (float[a, 3] x, int64 i) => (float[a, 3] z) { z = Trilu (x, i) }",
    ),
    (
        "mat-mul-integer-vector",
        "g (uint8[3] x, uint8[3, 4] y) => (int32[4] z) { z = MatMulInteger (x, y) }",
        "g (uint8[a, 3] x, uint8[3, 4] y) => (int32[a, 4] z) { z = MatMulInteger (x, y) }",
    ),
    (
        "hardmax-unknown-size",
        "g (float[a, 3] x) => (float[a, 3] z) { z = Hardmax <axis: int = 0> (x) }",
        "g (float[a, 3] x) => (float[a, 3] z) { z = Hardmax (x) }",
    ),
    (
        "batch-normalization-different-sizes",
        (
            "g (float[2, b, 5] x) => (float[2, b, 5] z) <float[3] s = {1, 2, 3}> "
            "{ z = BatchNormalization (x, s, s, s, s) }"
        ),
        (
            "g (float[a, 3, 5] x) => (float[a, 3, 5] z) <float[3] s = {1, 2, 3}> "
            "{ z = BatchNormalization (x, s, s, s, s) }"
        ),
    ),
    (
        "concat-different-sizes",
        "g (float[a, 3] x, float[n, 4] y) => (float[a, 7] z) { z = Concat <axis: int = 1> (x, y) }",
        "g (float[a, 3] x, float[a, 4] y) => (float[a, 7] z) { z = Concat <axis: int = 1> (x, y) }",
    ),
    (
        "conv-different-sizes",
        "g (float[2, b, 5] x, float[4, 3, 2] w) => (float[2, 4, 4] z) { z = Conv (x, w) }",
        "g (float[a, 3, 5] x, float[4, 3, 2] w) => (float[a, 4, 4] z) { z = Conv (x, w) }",
    ),
    (
        "conv-transpose-different-sizes",
        "g (float[2, b, 5] x, float[3, 4, 2] w) => (float[2, 4, 6] z) { z = ConvTranspose (x, w) }",
        "g (float[a, 3, 5] x, float[3, 4, 2] w) => (float[a, 4, 6] z) { z = ConvTranspose (x, w) }",
    ),
    (
        "gemm-different-sizes",
        "g (float[2, b] x, float[3, 4] y) => (float[2, 4] z) { z = Gemm (x, y) }",
        "g (float[a, 3] x, float[3, 4] y) => (float[a, 4] z) { z = Gemm (x, y) }",
    ),
    (
        "instance-normalization-different-sizes",
        (
            "g (float[2, b, 5] x) => (float[2, b, 5] z) <float[3] s = {1, 2, 3}> "
            "{ z = InstanceNormalization (x, s, s) }"
        ),
        (
            "g (float[a, 3, 5] x) => (float[a, 3, 5] z) <float[3] s = {1, 2, 3}> "
            "{ z = InstanceNormalization (x, s, s) }"
        ),
    ),
    (
        "layer-normalization-different-sizes",
        "g (float[a, b] x, float[3] s) => (float[a, b] z) { z = LayerNormalization (x, s) }",
        "g (float[a, 3] x, float[3] s) => (float[a, 3] z) { z = LayerNormalization (x, s) }",
    ),
    (
        "mat-mul-different-sizes",
        "g (float[a, 2, 3] x, float[n, 3, 2] y) => (float[a, 2, 2] z) { z = MatMul (x, y) }",
        "g (float[a, 2, 3] x, float[1, 3, 2] y) => (float[a, 2, 2] z) { z = MatMul (x, y) }",
    ),
    (
        "p-relu-different-sizes",
        "g (float[a, b] x, float[3] s) => (float[a, b] z) { z = PRelu (x, s) }",
        "g (float[a, 3] x, float[3] s) => (float[a, 3] z) { z = PRelu (x, s) }",
    ),
    (
        "scatter-elements-different-sizes",
        (
            "g (float[5, 7] x, int64[a, 1] i, float[m, 3] u) => (float[5, 7] z) "
            "{ s = Shape (u)  j = Expand (i, s)  z = ScatterElements (x, j, u) }"
        ),
        (
            "g (float[5, 7] x, int64[a, 1] i, float[a, 3] u) => (float[5, 7] z) "
            "{ s = Shape (u)  j = Expand (i, s)  z = ScatterElements (x, j, u) }"
        ),
    ),
    (
        "scatter-elements-different-sizes",
        (
            "g (float[5, 7] x, int64[a, 3] i, float[2, 3] u) => (float[5, 7] z) "
            "{ z = ScatterElements (x, i, u) }"
        ),
        (
            "g (float[5, 7] x, int64[2, 3] i, float[2, 3] u) => (float[5, 7] z) "
            "{ z = ScatterElements (x, i, u) }"
        ),
    ),
    (
        "if-different-branches",
        (
            "g (bool k, float[a, 3] x, float[b, 3] y) => (float[n, 3] z) { z = If (k) <"
            "then_branch = t () => (float[a, 3] u) { u = Neg (x) }, "
            "else_branch = e () => (float[b, 3] v) { v = Neg (y) }> }"
        ),
        (
            "g (bool k, float[a, 3] x) => (float[a, 3] z) { z = If (k) <"
            "then_branch = t () => (float[a, 3] u) { u = Neg (x) }, "
            "else_branch = e () => (float[a, 3] v) { v = Abs (x) }> }"
        ),
    ),
    (
        "mod-sizes",
        (
            "g (float[c] x, int64[n] i) => (bool[n] z) "
            "{ s = Shape (x)  m = Mod (i, s)  z = Less (m, i) }"
        ),
        "g (float[c] x, int64[n] i) => (bool[n] z) { s = Shape (x)  z = Less (i, s) }",
    ),
    (
        "div-sizes",
        (
            "g (float[c] x, int64[n] i) => (bool[n] z) "
            "{ s = Shape (x)  m = Div (i, s)  z = Less (m, i) }"
        ),
        "g (float[c] x, int64[n] i) => (bool[n] z) { s = Shape (x)  z = Less (i, s) }",
    ),
    (
        "mul-sizes",
        (
            "g (float[c] x, int64[n] i) => (bool[n] z) "
            "{ s = Shape (x)  m = Mul (i, s)  z = Less (m, i) }"
        ),
        (
            "g (float[c] x, float[n] i) => (float[m] z) "
            "{ s = Shape (x)  t = Shape (i)  p = Mul (s, t) "
            "z = ConstantOfShape <value: tensor = float[1] {2}> (p) }"
        ),
    ),
    (
        "cast-int64-output",
        (
            "g (float[a] x, int64[a] y) => (int64[a] z) "
            "{ w = Cast <to: int = 7> (x)  z = Add (w, y) }"
        ),
        (
            "g (int32[a] x, float[5] y) => (float[a] z) "
            "{ w = Cast <to: int = 7> (x)  z = Gather (y, w) }"
        ),
    ),
    (
        "cast-int64-output",
        (
            "g (float[3] x, int64 s) => (int64 z, int64[3] o) { w = Cast <to: int = 7> (x) "
            "z, o = Scan <num_scan_inputs: int = 1, body = b (int64 a, int64 c) "
            "=> (int64 d, int64 e) { d = Add (a, c)  e = Identity (d) }> (s, w) }"
        ),
        (
            "g (int64[3] x, int64 s) => (int64 z, int64[3] o) { "
            "z, o = Scan <num_scan_inputs: int = 1, body = b (int64 a, int64 c) "
            "=> (int64 d, int64 e) { d = Add (a, c)  e = Identity (d) }> (s, x) }"
        ),
    ),
    (
        "shape-int64-output",
        "g (float[a] x) => (int64[1] z) { z = Shape (x) }",
        "g (float[a] x) => (int32[1] z) { s = Shape (x)  z = Cast <to: int = 6> (s) }",
    ),
    (
        "size-int64-output",
        "g (float[a] x) => (int64 z) { z = Size (x) }",
        "g (float[a] x) => (int32 z) { s = Size (x)  z = Cast <to: int = 6> (s) }",
    ),
    *(
        (
            f"arg-{word.lower()}-computed",
            (
                f"g (float[a, 3] x) => (int32[a, 1] z) {{ y = Cast <to: int = 7> (x) "
                f"w = Arg{word} <axis: int = 1> (y)  z = Cast <to: int = 6> (w) }}"
            ),
            (
                f"g (float[a, 3] x) => (int64[a, 1] z) "
                f"{{ y = Neg (x)  z = Arg{word} <axis: int = 1> (y) }}"
            ),
        )
        for word in ("Max", "Min")
    ),
    (
        "pad-computed",
        (
            "g (float[3] x) => (bool[5] z) <int64[2] p = {1, 1}, int64[1] o = {1}> "
            "{ y = Cast <to: int = 7> (x)  w = Pad (y, p)  z = Less (w, o) }"
        ),
        ("g (float[3] x) => (float[5] z) <int64[2] p = {1, 1}> { y = Neg (x)  z = Pad (y, p) }"),
    ),
    (
        "top-k-computed",
        (
            "g (float[3] x) => (int32[2] z) <int64[1] k = {2}> "
            "{ y = Cast <to: int = 7> (x)  w, i = TopK (y, k)  z = Cast <to: int = 6> (w) }"
        ),
        (
            "g (float[3] x) => (float[2] z, int64[2] i) <int64[1] k = {2}> "
            "{ y = Neg (x)  z, i = TopK (y, k) }"
        ),
    ),
    (
        "flatten-several-unknown-sizes",
        "g (float[a, b, 4] x) => (float[a, n] z) { z = Flatten (x) }",
        "g (float[a, 4] x) => (float[a, 4] z) { z = Flatten (x) }",
    ),
    (
        "flatten-unknown-sizes",
        "g (float[a, b, c, d] x) => (float[m, n] z) { z = Flatten <axis: int = 2> (x) }",
        "g (float[a, 2, 3] x) => (float[m, 3] z) { z = Flatten <axis: int = 2> (x) }",
    ),
    (
        "gather-nd-negative-indices-open",
        "g (float[a, 3] x) => (float[1, 3] z) <int64[1, 1] i = {-1}> { z = GatherND (x, i) }",
        "g (float[a, 3] x) => (float[1, 3] z) <int64[1, 1] i = {1}> { z = GatherND (x, i) }",
    ),
    (
        "scatter-nd-negative-indices-open",
        (
            "g (float[a, 3] x, float[1, 3] u) => (float[a, 3] z) <int64[1, 1] i = {-1}> "
            "{ z = ScatterND (x, i, u) }"
        ),
        (
            "g (float[a, 3] x, float[1, 3] u) => (float[a, 3] z) <int64[1, 1] i = {1}> "
            "{ z = ScatterND (x, i, u) }"
        ),
    ),
]
"""A limit of tract, a model to which it applies, and one without it, at opset 18."""
