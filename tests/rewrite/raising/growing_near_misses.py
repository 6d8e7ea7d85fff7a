"""Decoders whose caches grow, in the text form of onnx, each of which differs in one thing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NEAR_MISSES", "NearMiss"]

_INPUTS = """float[B,4,S,8] new_q, float[B,2,S,8] new_k, float[B,2,S,6] new_v,
    float[B,2,P,8] past_k, float[B,2,P,6] past_v"""
_OUTPUTS = "float[B,4,S,6] y, float[B,2,T,8] present_k, float[B,2,T,6] present_v"
_INITIALIZERS = """int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 three = {3},
    int64 four = {4}, int64[1] c0 = {0}, int64[1] c1 = {1}, int64[1] c2 = {2}, int64[1] c3 = {3},
    int64[1] c4 = {4}, int64[1] c6 = {6}, int64[1] c8 = {8}, int64[1] last = {-1},
    int64[1] front = {-9999}, float low = {-3.4028234663852886e38}, float none = {0.0},
    float half = {0.5}, float[1,4,1,1] slopes = {0.5, 0.25, 0.125, 0.0625}, int64[2] order = {1, 0},
    float[40,4] angles = {%s}"""
_INITIALIZERS %= ", ".join(f"{(7 * n) % 31 / 10}" for n in range(160))

_NEW = "k = Neg (new_k) v = Neg (new_v)"
_GROW = """present_k = Concat <axis = 2> (past_k, k) present_v = Concat <axis = 2> (past_v, v)"""
_ALL = f"{_NEW} {_GROW}"
_COUNTS = """
    s1 = Shape <start = 2, end = 3> (new_q) s = Squeeze (s1)
    p1 = Shape <start = 2, end = 3> (past_k) p = Squeeze (p1) t = Add (p, s)
    keys = Range (zero, t, one) rows = Range (zero, s, one) i = Unsqueeze (rows, c1)
    at = Add (i, p)
"""
_PADDED = """
    told = Cast <to = 9> (attention_mask) a12 = Concat <axis = 0> (c1, c2)
    token = Unsqueeze (told, a12)
"""


def _repeated(name: str, at: int, width: str) -> str:
    """Repeat heads: behind each head for `at` 2, all of them anew for `at` 1."""
    return f"""
    {name}_b = Shape <start = 0, end = 1> ({name}) {name}_n = Shape <start = 2, end = 3> ({name})
    {name}_u = Unsqueeze ({name}, c{at})
    {name}_e = Concat <axis = 0> ({name}_b, c2, c2, {name}_n, {width})
    {name}_w = Expand ({name}_u, {name}_e)
    {name}_f = Concat <axis = 0> ({name}_b, c4, {name}_n, {width})
    {name}_r = Reshape ({name}_w, {name}_f)
    """


def _repeats(keys: int = 2, values: int = 2) -> str:
    return _repeated("present_k", keys, "c8") + _repeated("present_v", values, "c6")


_SCORES = """turned = Transpose <perm = [0, 1, 3, 2]> (present_k_r)
    raw = MatMul (new_q, turned) scores = Mul (raw, half)"""
_SHOWN = "bias = Where (seen, none, low) x = Add (scores, bias)"
_END = "w = Softmax <axis = -1> (x) y = MatMul (w, present_v_r)"
_ATTEND = f"{_repeats()} {_SCORES}"


def _masked(seen: str, *, padded: bool = False) -> str:
    """Return a decoder that shows the keys of a condition; `seen` may read `token`."""
    more = _PADDED if padded else ""
    return f"{_ALL} {_COUNTS} {more} {_ATTEND} {seen} {_SHOWN} {_END}"


_CAUSAL = "seen = LessOrEqual (keys, at)"
_ROTATED = """
    place = Unsqueeze (PLACES, c1) angle = Gather (angles, place)
    both = Concat <axis = 3> (angle, angle) cosine = Cos (both) sine = Sin (both)
    direct = Mul (new_k, cosine) ahead = Slice (new_k, c0, c4, c3)
    behind = Slice (new_k, c4, c8, c3)
    back = Neg (behind) swapped = Concat <axis = 3> (back, ahead) across = Mul (swapped, sine)
    k = Add (direct, across) v = Neg (new_v)
"""
_GROWN_IF = f"""{_NEW} present_v = Concat <axis = 2> (past_v, v) y = Slice (new_q, c0, c6, c3)
    present_k = If (new_go) <
        then_branch = yes () => (float[B,2,T,8] a)
            {{{{ n = Neg (new_k) a = Concat <axis = 2> {{}} }}}},
        else_branch = no () => (float[B,2,T,8] o)
            {{{{ m = Neg (new_k) o = Concat <axis = 2> {{}} }}}}>"""
_LOOK = """z = If (new_go) <
    then_branch = yes () => (float[B,2,8] a) {{ e = Identity (none) a = {} }},
    else_branch = no () => (float[B,2,8] o) {{ o = ReduceMax <keepdims = 0> (new_k, c2) }}>"""
_LOOP = """start = ReduceMax <keepdims = 0> (new_k, c2)
    z = Loop (two, , start) <body = b (int64 n, bool c, float[B,2,8] x) =>
        (bool d, float[B,2,8] r) {{ d = Identity (c) e = ReduceSum <keepdims = 0> ({}, c2)
        r = Add (x, e) }}>"""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A decoder and what becomes of it.

    Attributes:
        body: Its nodes.
        raised: Caches that get a capacity.
        fused: How many Attention it has then.
        inputs: Inputs beside the usual ones.
        outputs: Outputs beside the usual ones; without `y` where there is no attention.
        static: Whether all of its sizes can be numbers.
    """

    body: str
    raised: int = 2
    fused: int = 1
    inputs: str = ""
    outputs: str = ""
    static: bool = False

    @property
    def text(self) -> str:
        """The model."""
        mask = "int64[B,M] attention_mask" if "attention_mask" in self.body else ""
        inputs, outputs = (
            ", ".join(part for part in parts if part)
            for parts in ((_INPUTS, mask, self.inputs), (_OUTPUTS, self.outputs))
        )
        return (
            f'<ir_version: 8, opset_import: ["" : 18]>\nm ({inputs}) => ({outputs})\n'
            f"<{_INITIALIZERS}>\n{{{self.body}}}"
        )


NEAR_MISSES = {
    "causal": NearMiss(_masked(_CAUSAL), static=True),
    "causal, and one key further": NearMiss(
        _masked("next = Add (at, one) seen = LessOrEqual (keys, next)"), static=True
    ),
    "causal, and one key less, but the first": NearMiss(
        _masked("early = Less (keys, at) first = Equal (keys, zero) seen = Or (early, first)"),
        static=True,
    ),
    "causal from the past alone": NearMiss(_masked("seen = LessOrEqual (keys, p)"), static=True),
    "causal at twice the query": NearMiss(
        _masked("i2 = Mul (i, two) at2 = Add (i2, p) seen = LessOrEqual (keys, at2)"), static=True
    ),
    "causal in the rows of a step alone": NearMiss(
        _masked("seen = LessOrEqual (keys, i)"), static=True
    ),
    "later keys, and the first": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) late = Not (early) first = Equal (keys, zero)"
            " seen = Or (late, first)"
        ),
        static=True,
    ),
    "a window of four": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) far = Sub (at, four) near = Greater (keys, far)"
            " seen = And (early, near)"
        ),
        static=True,
    ),
    "a window of five, by the equals sign": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) far = Sub (at, four) near = GreaterOrEqual (keys, far)"
            " seen = And (early, near)"
        ),
        static=True,
    ),
    "a window that ends before the step": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) far = Sub (p, four) near = Greater (keys, far)"
            " seen = And (early, near)"
        ),
        static=True,
    ),
    "a window on both sides": NearMiss(
        _masked(
            "apart = Sub (keys, at) away = Abs (apart) near = Less (away, four)"
            " early = LessOrEqual (keys, at) seen = Or (near, early)"
        ),
        static=True,
    ),
    "every second key": NearMiss(
        _masked(
            "apart = Sub (at, keys) odd = Mod (apart, two) even = Equal (odd, zero)"
            " early = LessOrEqual (keys, at) seen = And (early, even)"
        ),
        static=True,
    ),
    "causal and padding": NearMiss(
        _masked("early = LessOrEqual (keys, at) seen = And (early, token)", padded=True),
        static=True,
    ),
    "causal or padding": NearMiss(
        _masked("early = LessOrEqual (keys, at) seen = Or (early, token)", padded=True), static=True
    ),
    "padding of the query": NearMiss(
        _masked(
            "new = Slice (told, p1, m1, c1) a13 = Concat <axis = 0> (c1, c3)"
            " of_query = Unsqueeze (new, a13) early = LessOrEqual (keys, at)"
            " either = Not (of_query) shown = Equal (keys, zero) some = Or (either, shown)"
            " seen = And (early, some)",
            padded=True,
        ).replace(_COUNTS, f"{_COUNTS} m1 = Shape <start = 1> (attention_mask)"),
        static=True,
    ),
    "padding of the other sequence": NearMiss(
        _masked(
            "b1 = Shape <start = 0, end = 1> (told) b = Squeeze (b1) b0 = Sub (b, one)"
            " less = Neg (one) turned_over = Range (b0, less, less)"
            " other = Gather <axis = 0> (token, turned_over)"
            " early = LessOrEqual (keys, at) either = Or (early, other) seen = And (early, either)",
            padded=True,
        ),
        static=True,
    ),
    "padding from the last column to the first": NearMiss(
        _masked(
            "turned_over = Slice (token, last, front, c3, last)"
            " early = LessOrEqual (keys, at) seen = And (early, turned_over)",
            padded=True,
        )
    ),
    "padding that counts from the first token": NearMiss(
        _masked(
            "counted = CumSum (attention_mask, one) many = Greater (counted, zero)"
            " some = Unsqueeze (many, a12) early = LessOrEqual (keys, at)"
            " seen = And (early, some)",
            padded=True,
        ),
        static=True,
    ),
    "ALiBi": NearMiss(
        f"{_ALL} {_COUNTS} {_ATTEND} apart = Sub (keys, at) away = Cast <to = 1> (apart)"
        f" tilt = Mul (away, slopes) seen = LessOrEqual (keys, at) hides = Where (seen, tilt, low)"
        f" x = Add (scores, hides) {_END}",
        static=True,
    ),
    "ALiBi with the slopes in the other order": NearMiss(
        f"{_ALL} {_COUNTS} {_ATTEND} apart = Sub (keys, at) away = Cast <to = 1> (apart)"
        f" steep = Slice (slopes, last, front, c1, last) tilt = Mul (away, steep)"
        f" seen = LessOrEqual (keys, at) hides = Where (seen, tilt, low)"
        f" x = Add (scores, hides) {_END}",
        static=True,
    ),
    "ALiBi from the first key of a step": NearMiss(
        f"{_ALL} {_COUNTS} {_ATTEND} apart = Sub (keys, i) away = Cast <to = 1> (apart)"
        f" tilt = Mul (away, slopes) x = Add (scores, tilt) {_END}",
        static=True,
    ),
    "keys repeated in the other order": NearMiss(
        _masked(_CAUSAL).replace(_repeats(), _repeats(keys=1)), fused=0, static=True
    ),
    "values repeated in the other order": NearMiss(
        _masked(_CAUSAL).replace(_repeats(), _repeats(values=1)), fused=0, static=True
    ),
    "heads exchanged behind the cache": NearMiss(
        _masked(_CAUSAL)
        .replace(_repeats(), f"other = Gather <axis = 1> (present_k, order) {_repeats()}")
        .replace("(present_k, c2)", "(other, c2)"),
        fused=0,
        static=True,
    ),
    "a scale on the queries and on the scores": NearMiss(
        _masked(_CAUSAL)
        .replace("(new_q, turned)", "(smaller, turned)")
        .replace("raw =", "smaller = Mul (new_q, half) raw ="),
        static=True,
    ),
    "a softcap before the scale": NearMiss(
        _masked(_CAUSAL)
        .replace("scores =", "capped = Tanh (raw) scores =")
        .replace("Mul (raw, half)", "Mul (capped, half)"),
        static=True,
    ),
    "a softcap behind the mask": NearMiss(
        f"{_ALL} {_COUNTS} {_ATTEND} {_CAUSAL} bias = Where (seen, none, low)"
        f" all = Add (scores, bias) x = Tanh (all) {_END}",
        fused=0,
        static=True,
    ),
    "a sink": NearMiss(
        f"{_ALL} {_COUNTS} {_ATTEND} {_CAUSAL} {_SHOWN} sink = ReduceMax <keepdims = 1> (x, c3)"
        f" more = Concat <axis = 3> (x, sink) all = Softmax <axis = -1> (more)"
        f" w = Slice (all, c0, last, c3) y = MatMul (w, present_v_r)",
        fused=0,
        static=True,
    ),
    "keys of the past and new keys scored apart": NearMiss(
        f"{_ALL} few = Slice (new_q, c0, c2, c1) old = Transpose <perm = [0, 1, 3, 2]> (past_k)"
        " young = Transpose <perm = [0, 1, 3, 2]> (k) left = MatMul (few, old)"
        " right = MatMul (few, young) x = Concat <axis = 3> (left, right)"
        " w = Softmax <axis = -1> (x) half_y = MatMul (w, present_v)"
        " y = Concat <axis = 1> (half_y, half_y)",
        raised=1,
        fused=0,
    ),
    "new keys in front of the past": NearMiss(
        _masked(_CAUSAL).replace("(past_k, k)", "(k, past_k)"), raised=1, fused=1
    ),
    "keys rotated at their positions": NearMiss(
        f"{_ROTATED.replace('PLACES', 'position_ids')} {_GROW} {_COUNTS} {_ATTEND} {_CAUSAL}"
        f" {_SHOWN} {_END}",
        inputs="int64[B,S] position_ids",
        static=True,
    ),
    "keys rotated one position further": NearMiss(
        f"{_COUNTS} moved = Add (position_ids, one) {_ROTATED.replace('PLACES', 'moved')} {_GROW}"
        f" {_ATTEND} {_CAUSAL} {_SHOWN} {_END}",
        inputs="int64[B,S] position_ids",
        static=True,
    ),
    "keys rotated by how many tokens the mask counts": NearMiss(
        f"{_COUNTS} m1 = Shape <start = 1> (attention_mask)"
        " counted = CumSum (attention_mask, one) fresh = Slice (counted, p1, m1, c1)"
        f" {_ROTATED.replace('PLACES', 'fresh')} {_GROW} {_ATTEND} {_CAUSAL} {_SHOWN} {_END}",
        static=True,
    ),
    "the cache rotated as a whole when it is read": NearMiss(
        f"{_ALL} {_COUNTS} place = Gather (angles, keys)"
        " both = Concat <axis = 1> (place, place) cosine = Cos (both)"
        f" spun = Mul (present_k, cosine) {_repeated('spun', 2, 'c8')}"
        f" {_repeated('present_v', 2, 'c6')} {_SCORES.replace('present_k_r', 'spun_r')}"
        f" {_CAUSAL} {_SHOWN} {_END}",
        fused=0,
    ),
    "two layers that read one cache": NearMiss(
        f"{_masked(_CAUSAL)} q2 = Neg (new_q) raw2 = MatMul (q2, turned) x2 = Add (raw2, bias)"
        " w2 = Softmax <axis = -1> (x2) z = MatMul (w2, present_v_r)",
        outputs="float[B,4,S,6] z",
        fused=2,
        static=True,
    ),
    "two layers that append to one past": NearMiss(
        f"{_masked(_CAUSAL)} k2 = Abs (new_k) z = Concat <axis = 2> (past_k, k2)",
        outputs="float[B,2,T,8] z",
        raised=1,
        fused=1,
    ),
    "a present that is the past of the next layer": NearMiss(
        f"{_masked(_CAUSAL)} k2 = Abs (new_k) z = Concat <axis = 2> (present_k, k2)",
        outputs="float[B,2,U,8] z",
    ),
    "a past that is read before it grows": NearMiss(
        f"{_masked(_CAUSAL)} z = ReduceSum <keepdims = 0> (past_k, c2)",
        outputs="float[B,2,8] z",
        raised=1,
        fused=1,
    ),
    "a mean over the rows in use": NearMiss(
        f"{_masked(_CAUSAL)} z = ReduceSum <keepdims = 0> (present_k, c2)",
        outputs="float[B,2,8] z",
        static=True,
    ),
    "keys with the values of the other cache": NearMiss(
        _masked(_CAUSAL)
        .replace("(past_v, v)", "(past_v, v6)")
        .replace(_NEW, f"{_NEW} v6 = Slice (k, c0, c6, c3)"),
        static=True,
    ),
    "the sizes of the mask, handed out": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) seen = And (early, token)"
            " z = Shape (attention_mask) u = Shape <start = 1> (told)",
            padded=True,
        ),
        outputs="int64[2] z, int64[1] u",
        static=True,
    ),
    "the last column of the mask, handed out": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) seen = And (early, token)"
            " z = Gather <axis = 1> (attention_mask, last)",
            padded=True,
        ),
        outputs="int64[B,1] z",
        static=True,
    ),
    "how many tokens the mask counts, handed out": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) seen = And (early, token)"
            " z = ReduceSum (attention_mask, c1)",
            padded=True,
        ),
        outputs="int64[B,1] z",
        static=True,
    ),
    "the whole mask, handed out": NearMiss(
        _masked(
            "early = LessOrEqual (keys, at) seen = And (early, token) z = Neg (attention_mask)",
            padded=True,
        ),
        outputs="int64[B,M] z",
    ),
    "branches that append in two orders": NearMiss(
        _GROWN_IF.format("(past_k, n)", "(m, past_k)"), raised=1, fused=0, inputs="bool new_go"
    ),
    "a branch that reads the past": NearMiss(
        f"{_masked(_CAUSAL)} {_LOOK.format('ReduceSum <keepdims = 0> (past_k, c2)')}",
        raised=1,
        fused=1,
        inputs="bool new_go",
        outputs="float[B,2,8] z",
    ),
    "a branch that reads the rows in use": NearMiss(
        f"{_masked(_CAUSAL)} {_LOOK.format('ReduceSum <keepdims = 0> (present_k, c2)')}",
        inputs="bool new_go",
        outputs="float[B,2,8] z",
    ),
    "a branch that asks how long the past is": NearMiss(
        f"{_masked(_CAUSAL)} {_LOOK.format('Mul (e, f)')}".replace(
            "e = Identity (none)",
            "l = Shape <start = 2, end = 3> (past_k) f = Cast <to = 1> (l)"
            " e = Slice (first_row, c0, c8, c2)",
        ).replace("z = If", "first_row = ReduceMax <keepdims = 0> (new_k, c2) z = If"),
        inputs="bool new_go",
        outputs="float[B,2,8] z",
        static=True,
    ),
    "a loop that reads the past": NearMiss(
        f"{_masked(_CAUSAL)} {_LOOP.format('past_k')}",
        raised=1,
        fused=1,
        outputs="float[B,2,8] z",
    ),
    "a loop that reads the rows in use": NearMiss(
        f"{_masked(_CAUSAL)} {_LOOP.format('present_k')}", outputs="float[B,2,8] z"
    ),
    "a loop that appends what it was given": NearMiss(
        f"{_masked(_CAUSAL)} z = Loop (two, , present_k) <body = b (int64 n, bool c,"
        " float[B,2,U,8] x) => (bool d, float[B,2,V,8] r) {"
        " d = Identity (c) r = Concat <axis = 2> (x, k) }>",
        outputs="float[B,2,W,8] z",
    ),
}
"""Each is right as a model; what is raised of it has to be equal."""
