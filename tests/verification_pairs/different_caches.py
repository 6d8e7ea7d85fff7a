"""Pairs of caches, attention and positions that differ."""

from __future__ import annotations

from collections.abc import Sequence

from tests.verification_pairs.pair import Feed, Pair, drawn, pair

__all__ = ["ATTENTION", "FIXED", "GROWING", "SQUARES", "STARTS"]

_ROWS = 64


def _fixed(
    name: str, start: str, past: int, *, rows: int = _ROWS, more: str = "", fails: bool = False
) -> Pair:
    """Return decoders with caches of `rows` rows that TensorScatter writes at `start`."""
    text = f"""(float[B,2,L,4] q, float[B,2,L,4] k, float[B,2,{rows},4] past_k, int64[B] pos)
    => (float[B,2,L,4] y, float[B,2,{rows},4] present_k) {{
        {start}
        present_k = TensorScatter <axis = 2> (past_k, k, at)
        n = Shape <start = 2, end = 3> (k)
        used = Add (pos, n)
        {more or "y = Attention (q, present_k, present_k, , , , used)"} }}"""
    feeds = _decoder(1, rows, 1)
    return pair(name, text, opset=24, pos=[past], fails=fails, **feeds)


def _decoder(batch: int, rows: int, length: int) -> dict[str, Feed]:
    new = (batch, 2, length, 4)
    return {"q": drawn(*new), "k": drawn(*new), "past_k": drawn(batch, 2, rows, 4)}


FIXED: list[Pair] = [
    _fixed("a start modulo 63 of 64 rows", "at = [[Identity (pos)|Mod (pos, #int64{63})]]", 63),
    _fixed("a start of 62 at most of 64 rows", "at = [[Identity (pos)|Min (pos, #int64{62})]]", 63),
    _fixed("a start of 40 at most of 64 rows", "at = [[Identity (pos)|Min (pos, #int64{40})]]", 41),
    _fixed("a start modulo 32 of 64 rows", "at = [[Identity (pos)|Mod (pos, #int64{32})]]", 33),
    _fixed("a start of 62 at least one, at the beginning",
        "at = [[Identity (pos)|Max (pos, #int64{1})]]", 0),
    _fixed("rows written one late, but for the last",
        "a = Add (pos, #int64{1}) at = [[Identity (pos)|Min (a, #int64{63})]]", 5),
    _fixed("a start through int8",
        "[[at = Identity (pos)|a = Cast <to = 3> (pos) at = Cast <to = 7> (a)]]", 130, rows=200,
        fails=True),
    _fixed("a start through float16",
        "[[at = Identity (pos)|a = Cast <to = 10> (pos) at = Cast <to = 7> (a)]]", 2049, rows=2100),
    _fixed("rows in use up to 63 of 64", "at = Identity (pos)", 63, more="u = [[Identity "
        "(used)|Min (used, #int64{63})]] y = Attention (q, present_k, present_k, , , , u)"),
    _fixed("one row too few in use", "at = Identity (pos)", 5, more="u = [[Identity (used)|Sub "
        "(used, #int64{1})]] y = Attention (q, present_k, present_k, , , , u)"),
    _fixed("one row too many in use", "at = Identity (pos)", 5, more="a = Add (used, #int64{1}) "
        "u = [[Identity (used)|Min (a, #int64{64})]] y = Attention (q, present_k, present_k, , , "
        ", u)"),
    _fixed("a position embedding of 48 rows of 64", "at = Identity (pos)", 60, more="p = "
        "[[Identity (pos)|Min (pos, #int64{47})]] e = Gather (#float[64,4]~1, p) "
        "f = Reshape (e, #int64[4]{-1, 1, 1, 4}) g = Add (q, f) "
        "y = Attention (g, present_k, present_k, , , , used)"),
    _fixed("the last row of a table of positions", "at = Identity (pos)", 63, more="e = Gather "
        "(#float[64,4]~1[[|@63*3]], pos) f = Reshape (e, #int64[4]{-1, 1, 1, 4}) g = Add (q, f) "
        "y = Attention (g, present_k, present_k, , , , used)"),
    _fixed("row 41 of a table of positions", "at = Identity (pos)", 41, more="e = Gather "
        "(#float[64,4]~1[[|@41*3]], pos) f = Reshape (e, #int64[4]{-1, 1, 1, 4}) g = Add (q, f) "
        "y = Attention (g, present_k, present_k, , , , used)"),
    _fixed("a window of 32 rows in a fixed cache", "at = Identity (pos)", 50, more="r = Sub "
        "(pos, #int64{32}) s = Unsqueeze (r, #int64[1]{1}) c = [[GreaterOrEqual|Greater]] "
        "(#int64[1,64]{0..63}, s) m = Unsqueeze (c, #int64[2]{1, 2}) "
        "y = Attention (q, present_k, present_k, m, , , used)"),
    _fixed("a window of 32 rows against none", "at = Identity (pos)", 50, more="r = Sub (pos, "
        "#int64{32}) s = Unsqueeze (r, #int64[1]{1}) c = GreaterOrEqual (#int64[1,64]{0..63}, s) "
        "d = Or (c, [[c|#bool{1}]]) m = Unsqueeze (d, #int64[2]{1, 2}) "
        "y = Attention (q, present_k, present_k, m, , , used)"),
]  # fmt: skip


_GROWING = """(float[B,2,L,4] q, float[B,2,L,4] k, float[B,2,P,4] past_k)
=> (float[B,2,L,4] y, float[B,2,T,4] present_k) {
    %s
    present_k = Concat <axis = 2> (past_k, k)
    p = Shape <start = 2, end = 3> (past_k)
    n = Shape <start = 2, end = 3> (k)
    t = Add (p, n)
    %s }"""


def _growing(name: str, body: str, past: int, length: int = 1, **own: object) -> Pair:
    """Return decoders whose cache grows, and that attend as `body` says."""
    return pair(name, _GROWING % ("", body), opset=24, **own, **_decoder(1, past, length))


def _window(rows: str) -> str:
    """Return attention of which each query sees the last rows, as many as the text says."""
    return f"""one = Squeeze (#int64[1]{{1}}) p0 = Squeeze (p) t0 = Squeeze (t) z = Sub (one, one)
    i = Range (p0, t0, one) j = Range (z, t0, one) a = Unsqueeze (i, #int64[1]{{1}})
    d = Sub (a, j) s = GreaterOrEqual (d, #int64{{0}}) w = Less (d, #int64{{{rows}}})
    m = And (s, w) y = Attention (q, present_k, present_k, m)"""


def _rotated(position: str) -> str:
    """Return attention whose queries are turned by rows of tables of 64 positions."""
    return f"""one = Squeeze (#int64[1]{{1}}) p0 = Squeeze (p) t0 = Squeeze (t)
    i = Range (p0, t0, one)
    at = {position} ids = Unsqueeze (at, #int64[1]{{0}})
    c = Gather (#float[64,2]~1, ids) s = Gather (#float[64,2]~2, ids)
    g = RotaryEmbedding (q, c, s) y = Attention (g, present_k, present_k)"""


_TURNED_ROWS = (
    "h = Slice (k, #int64[1]{[[0|-1]]}, #int64[1]{[[999|-999]]}, #int64[1]{2}, #int64[1]{[[1|-1]]})"
)

GROWING: list[Pair] = [
    *(
        _growing(f"a window of {rows} against none", _window(f"[[{rows}|999999]]"), rows + 2)
        for rows in (8, 16, 32, 48, 64, 128)
    ),
    *(
        _growing(f"a window of {rows} off by one", _window(f"[[{rows}|{rows + 1}]]"), rows + 2)
        for rows in (4, 16, 32)
    ),
    _growing("rotary tables clipped at 16", _rotated("[[Identity (i)|Min (i, #int64{15})]]"), 20),
    _growing("rotary tables clipped at 40", _rotated("[[Identity (i)|Min (i, #int64{39})]]"), 45),
    _growing("rotary positions modulo 32", _rotated("[[Identity (i)|Mod (i, #int64{32})]]"), 40),
    _growing("the last row of rotary tables", _rotated("[[Identity (i)|Min (i, #int64{62})]]"), 63),
    _growing("rotary positions of a growing cache off by one",
        _rotated("[[Identity (i)|Add (i, one)]]"), 5),
    _growing("a cache that is full at 16", "u = Min (t, #int64[1]{[[99999|16]]}) "
        "e = Slice (present_k, #int64[1]{0}, u, #int64[1]{2}) y = Attention (q, e, e)", 18),
    _growing("the last 16 rows alone are read", "[[e = Identity (present_k)|e = Slice "
        "(present_k, #int64[1]{-16}, #int64[1]{99999}, #int64[1]{2})]] y = Attention (q, e, e)",
        18),
    _growing("the last 32 rows alone are read", "[[e = Identity (present_k)|e = Slice "
        "(present_k, #int64[1]{-32}, #int64[1]{99999}, #int64[1]{2})]] y = Attention (q, e, e)",
        34),
    _growing("a scale that changes at 32 rows", "f = Cast <to = 1> (t) g = Div (f, #float{32}) "
        "[[h = Mul (g, #float{0}) r = Add (h, #float{1})|r = Max (g, #float{1})]] s = Mul (q, r) "
        "y = Attention (s, present_k, present_k)", 40),
    _growing("distances cut at 20", "one = Squeeze (#int64[1]{1}) z = Sub (one, one) "
        "t0 = Squeeze (t) j = Range (z, t0, one) r = Sub (t0, j) "
        "d = [[Identity (r)|Min (r, #int64{20})]] f = Cast <to = 1> (d) "
        "b = Mul (f, #float{-0.3}) c = Unsqueeze (b, #int64[1]{0}) "
        "y = Attention (q, present_k, present_k, c)", 25),
    _growing("no causal mask", "y = Attention <is_causal = [[1|0]]> (q, k, k, , past_k, past_k)", 3,
        length=3, runtime="reference"),
    _growing("one sink that is kept", "one = Squeeze (#int64[1]{1}) z = Sub (one, one) "
        "t0 = Squeeze (t) j = Range (z, t0, one) r = Sub (t0, j) w = LessOrEqual (r, #int64{24}) "
        "a = Less (j, #int64{[[1|2]]}) m = Or (w, a) n2 = Unsqueeze (m, #int64[1]{0}) "
        "y = Attention (q, present_k, present_k, n2)", 30),
    pair(
        "new rows in another order",
        _GROWING.replace("(past_k, k)", "(past_k, h)")
        % (_TURNED_ROWS, "y = Attention (q, present_k, present_k)"),
        opset=24,
        **_decoder(1, 3, 3),
    ),
]  # fmt: skip


_EIGHT = {"cache": drawn(1, 12, 3), "new": drawn(1, 2, 3)}


def _starts(name: str, body: str, **feeds: Feed) -> Pair:
    """Return models that write rows of (B, 12, 3) with the operator of their choice."""
    text = f"""(float[1,12,3] cache, float[1,2,3] new, int64[1] pos) => (float[1,12,3] present) {{
        {body} }}"""
    return pair(name, text, opset=24, **{**_EIGHT, **feeds})


_ELEMENTS = """a = Unsqueeze (at, #int64[2]{1, 2}) b = Add (a, #int64[1,2,1]{0, 1})
i = Expand (b, #int64[3]{1, 2, 3})
present = ScatterElements <axis = 1> (cache, i, new)"""
_TENSOR = "present = TensorScatter <axis = 1> (cache, new, at)"

STARTS: list[Pair] = [
    _starts("rows at pos - 8 that count from the end",
        f"at = Sub (pos, #int64{{8}}) [[{_ELEMENTS}|{_TENSOR}]]", pos=[3], fails=True),
    _starts("rows at pos - 8 of which the second model knows none below zero",
        f"c = Sub (pos, #int64{{8}}) at = [[Identity (c)|Max (c, #int64{{0}})]] {_ELEMENTS}",
        pos=[3]),
    _starts("an index that a cast to int32 wraps", f"[[at = Identity (pos)|c = Mul (pos, "
        f"#int64{{1}}) d = Cast <to = 6> (c) e = Cast <to = 7> (d) at = Identity (e)]] "
        f"s = Sub (at, #int64{{4294967296}}) t = Where (#bool{{0}}, s, at) "
        f"r = Mod (at, #int64{{10}}) u = Identity (t) {_ELEMENTS.replace('(at,', '(r,')}",
        pos=[4294967299]),
    _starts("rows across the end of a circular cache", "[[present = TensorScatter <axis = 1, "
        "mode = \"circular\"> (cache, new, pos)|m = Min (pos, #int64{10}) "
        "present = TensorScatter <axis = 1> (cache, new, m)]]", pos=[11]),
    _starts("rows across the end of a cache of 12, modulo 11",
        "[[at = Mod (pos, #int64{12})|at = Mod (pos, #int64{11})]] "
        "present = TensorScatter <axis = 1, mode = \"circular\"> (cache, new, at)", pos=[11]),
    _starts("rows that are added instead of written", "at = Identity (pos) " + _ELEMENTS.replace(
        "<axis = 1>", "<axis = 1, reduction = \"[[none|add]]\">"), pos=[3]),
    _starts("rows in reverse order", f"at = Identity (pos) [[w = Identity (new)|w = Slice (new, "
        f"#int64[1]{{-1}}, #int64[1]{{-9}}, #int64[1]{{1}}, #int64[1]{{-1}})]] "
        f"{_TENSOR.replace('new', 'w')}", pos=[3]),
]  # fmt: skip


def _attention(
    name: str, body: str, queries: Sequence[int] = (2, 6, 3, 4), groups: int = 2, rows: int = 5, *,
    scale: float = 1.0, **feeds: Feed,
) -> Pair:  # fmt: skip
    """Return models of q (B, 6, L, 4), and k and v (B, `groups`, S, 4)."""
    batch, heads, _, size = queries
    text = f"""(float[B,{heads},L,{size}] q,
    float[B,{groups},S,{size}] k, float[B,{groups},S,{size}] v)
    => (float[B,{heads},L,{size}] y) {{ {body} }}"""
    keys = drawn(batch, groups, rows, size)
    return pair(name, text, opset=24, q=drawn(*queries, scale=scale), k=keys, v=keys, **feeds)


_SOFT = "s = MatMul (q, t) w = Softmax (s) y = MatMul (w, v)"

ATTENTION: list[Pair] = [
    _attention("a scale of 1/2 against 0.45", "y = Attention <scale = [[0.5|0.45]]> (q, k, v)"),
    _attention("a scale that is taken twice",
        "a = Mul (q, #float{0.5}) y = Attention [[<scale = 1.0>|<scale = 0.5>]] (a, k, v)"),
    _attention("a softcap of 30 that few scores reach",
        "y = Attention <softcap = [[30.0|0.0]]> (q, k, v)", scale=30.0),
    _attention("a softcap of 30 for 50", "y = Attention <softcap = [[30.0|50.0]]> (q, k, v)",
        scale=20.0),
    _attention("causal against full", "y = Attention <is_causal = [[1|0]]> (q, k, v)"),
    _attention("heads that share keys in another order", "[[a = Unsqueeze (k, #int64[1]{2}) "
        "b = Expand (a, #int64[5]{1, 1, 3, 1, 1})|a = Unsqueeze (k, #int64[1]{1}) "
        "b = Expand (a, #int64[5]{1, 3, 1, 1, 1})]] c = Reshape (b, #int64[4]{0, 6, -1, 4}) "
        "y = Attention (q, c, c)"),
    _attention("keys for values", "y = Attention (q, k, [[v|k]])", runtime="reference"),
    _attention("a mask off by one column", "l = Shape <start = 2, end = 3> (q) "
        "s = Shape <start = 2, end = 3> (k) n = Concat <axis = 0> (l, s) "
        "o = Expand (#float{-10000}, n) m = Trilu (o, #int64{[[1|2]]}) y = Attention (q, k, v, m)"),
    _attention("a mask of -10 instead of -10,000", "l = Shape <start = 2, end = 3> (q) "
        "s = Shape <start = 2, end = 3> (k) n = Concat <axis = 0> (l, s) "
        "o = Expand (#float{[[-10000|-10]]}, n) m = Trilu (o, #int64{1}) "
        "y = Attention (q, k, v, m)", scale=20.0),
    _attention("a mask that hides the first column", "s = Shape <start = 2, end = 3> (k) "
        "z = Squeeze (#int64[1]{0}) e = Squeeze (s) o = Squeeze (#int64[1]{1}) "
        "r = Range (z, e, o) c = GreaterOrEqual (r, #int64{[[0|1]]}) "
        "l = Shape <start = 2, end = 3> (q) n = Concat <axis = 0> (l, s) m = Expand (c, n) "
        "y = Attention (q, k, v, m)"),
    _attention("rows in use off by one", "s = Shape <start = 2, end = 3> (k) "
        "b = Shape <start = 0, end = 1> (k) t = Sub (s, #int64[1]{[[1|2]]}) n = Expand (t, b) "
        "o = Max (n, #int64[1]{1}) y = Attention (q, k, v, , , , o)"),
    _attention("scores before for those after the softmax", "a, b, c, d = Attention "
        "<qk_matmul_output_mode = [[3|2]]> (q, k, v) e = Attention (q, k, v) y = MatMul (d, v)",
        groups=6),
    _attention("attention in small operators with a wrong scale",
        "t = Transpose <perm = [0, 1, 3, 2]> (k) a = Mul (q, #float{[[0.5|0.5001]]}) "
        "s = MatMul (a, t) w = Softmax (s) y = MatMul (w, v)", groups=6, apart=1e-5, scale=3.0),
    _attention("a softmax over queries", "t = Transpose <perm = [0, 1, 3, 2]> (k) "
        "s = MatMul (q, t) w = Softmax <axis = [[3|2]]> (s) y = MatMul (w, v)", groups=6),
    _attention("heads that are put together in another order",
        "a = Attention (q, k, v) [[b = Transpose <perm = [0, 2, 1, 3]> (a) "
        "c = Reshape (b, #int64[3]{0, 0, -1})|b = Transpose <perm = [0, 2, 3, 1]> (a) "
        "c = Reshape (b, #int64[3]{0, 0, -1})]] d = MatMul (c, #float[24,24]~1) "
        "e = Reshape (d, #int64[4]{0, 0, 6, 4}) y = Transpose <perm = [0, 2, 1, 3]> (e)"),
]  # fmt: skip


def _rotary(name: str, attributes: str, ids: str = "Identity (ids)") -> Pair:
    text = f"""(float[B,2,L,8] x, int64[B,L] ids) => (float[B,2,L,8] y) {{
        i = {ids} y = RotaryEmbedding <{attributes}> (x, #float[50,4]~1, #float[50,4]~2, i) }}"""
    return pair(name, text, opset=23, x=drawn(1, 2, 3, 8), ids=[[3, 40, 49]])


ATTENTION += [
    _rotary("rotary halves for pairs", "interleaved = [[0|1]]"),
    _rotary("rotary positions off by one", "interleaved = 0",
        "[[Identity (ids)|Add (ids, #int64{-1})]]"),
    _rotary("rotary positions of 47 at most", "interleaved = 0",
        "[[Identity (ids)|Min (ids, #int64{47})]]"),
    _rotary("rotary positions modulo 48", "interleaved = 0",
        "[[Identity (ids)|Mod (ids, #int64{48})]]"),
]  # fmt: skip


def _equal_sizes(name: str, body: str, x: Sequence[int] = (2, 4, 4, 4)) -> Pair:
    dims = ",".join(str(size) for size in x)
    text = f"(float[{dims}] q, float[{dims}] k) => (float[{dims}] y) {{ {body} }}"
    return pair(name, text, opset=24, q=drawn(*x), k=drawn(*x))


_TURNED = "t = Transpose <perm = [0, 1, 3, 2]> (k)"

SQUARES: list[Pair] = [
    _equal_sizes("keys that are not transposed",
        f"[[{_TURNED}|t = Identity (k)]] s = MatMul (q, t) w = Softmax (s) y = MatMul (w, k)"),
    _equal_sizes("keys of 16 rows and 16 channels that are not transposed",
        f"[[{_TURNED}|t = Identity (k)]] s = MatMul (q, t) w = Softmax (s) y = MatMul (w, k)", (1,
        2, 16, 16)),
    _equal_sizes("heads for rows",
        "[[a = Identity (q)|a = Transpose <perm = [0, 2, 1, 3]> (q)]] y = Attention (a, k, k)"),
    _equal_sizes("heads and channels of the output",
        "a = Attention (q, k, k) y = Transpose <perm = [0, [[2, 1, 3|3, 2, 1]] ]> (a)"),
    _equal_sizes("scores that are transposed", f"{_TURNED} a = MatMul (q, t) [[s = Identity "
        f"(a)|s = Transpose <perm = [0, 1, 3, 2]> (a)]] w = Softmax (s) y = MatMul (w, k)"),
    _equal_sizes("values that are transposed",
        f"{_TURNED} s = MatMul (q, t) w = Softmax (s) [[y = MatMul (w, k)|y = MatMul (w, t)]]"),
    _equal_sizes("the batch for the heads",
        "[[a = Identity (k)|a = Transpose <perm = [1, 0, 2, 3]> (k)]] y = Attention (q, a, k)", (4,
        4, 4, 4)),
    _equal_sizes("a cache along another axis", "[[present = Concat <axis = 2> "
        "(q, k)|present = Concat <axis = 1> (q, k)]] y = Slice (present, #int64[1]{2}, "
        "#int64[1]{6}, [[#int64[1]{2}|#int64[1]{1}]])"),
    _equal_sizes("a mask that is transposed",
        "m = Trilu <upper = [[0|1]]> (#float[4,4]~3) y = Attention (q, k, k, m)"),
]  # fmt: skip
