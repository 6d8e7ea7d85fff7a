"""What looks like attention and differs in one thing, in the text form of onnx."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DECOYS", "Decoy"]


@dataclass(frozen=True)
class Decoy:
    """A model and what becomes of it.

    Attributes:
        body: Its nodes.
        becomes: The reason of the refusal; `one` for one Attention that is equal all the same, `no`
            for what is no candidate.
        inputs: Inputs beside q, k and v.
        initializers: Numbers that the nodes read.
        outputs: Outputs beside y.
        shapes: Shapes of q, k, v and y.
        opset: Version of the default domain.
        says: What stands in the proof of one that is equal.
    """

    body: str
    becomes: str
    inputs: str = ""
    initializers: str = ""
    outputs: str = ""
    shapes: tuple[str, str, str, str] = ("B,6,L,7", "B,6,S,7", "B,6,S,13", "B,6,L,13")
    opset: int = 18
    dtype: str = "float"
    says: str = ""

    @property
    def text(self) -> str:
        """The model."""
        q, k, v, y = (f"{self.dtype}[{shape}]" for shape in self.shapes)
        more = f", {self.inputs}" if self.inputs else ""
        outputs = f", {self.outputs}" if self.outputs else ""
        held = f"<{self.initializers}>" if self.initializers else ""
        return (
            f'<ir_version: 8, opset_import: ["" : {self.opset}]>\n'
            f"attention ({q} q, {k} k, {v} v{more}) => ({y} y{outputs})\n{held}\n{{{self.body}}}"
        )


_TURNED = "t = Transpose <perm = [0, 1, 3, 2]> (k)\n"
_SCORES = _TURNED + "s = MatMul (q, t)\n"
_END = "p = Softmax <axis = -1> (x)\ny = MatMul (p, v)\n"
_GROUPED = ("B,6,L,7", "B,3,S,7", "B,3,S,13", "B,6,L,13")
_SQUARE = ("B,6,L,7", "B,6,L,7", "B,6,L,13", "B,6,L,13")


def _repeated(name: str, at: int, width: int) -> str:
    """Repeat heads: behind each head for `at` 2, all of them anew for `at` 1."""
    first, second = ("c3", "c2") if at == 2 else ("c2", "c3")
    return f"""
{name}_b = Shape <start = 0, end = 1> ({name})
{name}_n = Shape <start = 2, end = 3> ({name})
{name}_u = Unsqueeze ({name}, c{at})
{name}_e = Concat <axis = 0> ({name}_b, {first}, {second}, {name}_n, c{width})
{name}_w = Expand ({name}_u, {name}_e)
{name}_f = Concat <axis = 0> ({name}_b, c6, {name}_n, c{width})
{name}_r = Reshape ({name}_w, {name}_f)
"""


_INTEGERS = ", ".join(f"int64[1] c{n} = {{{n}}}" for n in (1, 2, 3, 6, 7, 13))
_PRODUCT = "t = Transpose <perm = [0, 1, 3, 2]> (k_r)\nx = MatMul (q, t)\n"
_ENDED = "p = Softmax <axis = -1> (x)\ny = MatMul (p, v_r)\n"

_POSITIONS = """
l = Shape <start = 2, end = 3> (q)
l0 = Squeeze (l)
r = Range (zero, l0, one)
i = Unsqueeze (r, c1)
"""
_COUNTS = (
    f"int64 zero = {{0}}, int64 one = {{1}}, {_INTEGERS}, float n = {{0.0}}, float f = {{-inf}}"
)


def _hidden(condition: str, fill: str = "f") -> str:
    return f"{_SCORES}{_POSITIONS}{condition}\nm = Where (c, n, {fill})\nx = Add (s, m)\n{_END}"


DECOYS = {
    "heads repeated in the other order": Decoy(
        _repeated("k", 1, 7) + _repeated("v", 1, 13) + _PRODUCT + _ENDED,
        "one",
        initializers=_INTEGERS,
        shapes=_GROUPED,
        says="the keys are `k_r`",
    ),
    "heads of the values repeated in the other order": Decoy(
        _repeated("k", 2, 7) + _repeated("v", 1, 13) + _PRODUCT + _ENDED,
        "one",
        initializers=_INTEGERS,
        shapes=_GROUPED,
        says="the values are `v_r`",
    ),
    "a scale for each head": Decoy(
        _SCORES + "x = Mul (s, w)\n" + _END, "unknown-scale", inputs="float[1,6,1,1] w"
    ),
    "a scale that is fed": Decoy(
        _SCORES + "x = Mul (s, w)\n" + _END, "unknown-scale", inputs="float w"
    ),
    "a scale that may be fed": Decoy(
        _SCORES + "x = Mul (s, w)\n" + _END,
        "unknown-scale",
        inputs="float w",
        initializers="float w = {0.5}",
    ),
    "a scale below zero": Decoy(
        _SCORES + "x = Mul (s, w)\n" + _END, "unknown-scale", initializers="float w = {-0.5}"
    ),
    "a scale of zero": Decoy(
        _SCORES + "x = Mul (s, w)\n" + _END, "unknown-scale", initializers="float w = {0.0}"
    ),
    "a division by zero": Decoy(
        _SCORES + "x = Div (s, w)\n" + _END, "unknown-scale", initializers="float w = {0.0}"
    ),
    "a number divided by the scores": Decoy(
        _SCORES + "x = Div (w, s)\n" + _END, "unknown-scale", initializers="float w = {2.0}"
    ),
    "a scale applied twice": Decoy(
        _SCORES + "z = Mul (s, w)\nx = Mul (z, w)\n" + _END,
        "one",
        initializers="float w = {0.5}",
        says="times 0.25",
    ),
    "a scale for each column of the queries": Decoy(
        "a = Mul (q, w)\n" + _TURNED + "x = MatMul (a, t)\n" + _END,
        "one",
        inputs="float[7] w",
        says="the queries are `a`",
    ),
    "probabilities that are an output": Decoy(
        _SCORES + "p = Softmax <axis = -1> (s)\ny = MatMul (p, v)\n",
        "probabilities-read",
        outputs="float[B,6,L,S] p",
    ),
    "probabilities that are read elsewhere": Decoy(
        _SCORES + "p = Softmax <axis = -1> (s)\ny = MatMul (p, v)\nz = ReduceMax (p)\n",
        "probabilities-read",
        outputs="float[1,1,1,1] z",
    ),
    "a guard that is read elsewhere": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nb = IsNaN (p)\ng = Where (b, w, p)\ny = MatMul (g, v)\n"
        + "z = Not (b)\n",
        "other-layout",
        initializers="float w = {0.0}",
        outputs="bool[B,6,L,S] z",
    ),
    "a guard that puts another number": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nb = IsNaN (p)\ng = Where (b, w, p)\ny = MatMul (g, v)\n",
        "other-layout",
        initializers="float w = {0.5}",
    ),
    "a guard of another value": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nb = IsNaN (s)\ng = Where (b, w, p)\ny = MatMul (g, v)\n",
        "other-layout",
        initializers="float w = {0.0}",
    ),
    "keys transposed twice": Decoy(
        _TURNED + "u = Transpose <perm = [0, 1, 3, 2]> (t)\nx = MatMul (q, u)\n" + _END,
        "one",
        shapes=("B,6,L,7", "B,6,7,S", "B,6,S,13", "B,6,L,13"),
    ),
    "heads and rows exchanged by a Reshape": Decoy(
        "b = Shape <start = 0, end = 1> (k)\nn = Shape <start = 1, end = 2> (k)\n"
        "h = Concat <axis = 0> (b, c6, n, c7)\na = Reshape (k, h)\n"
        "t = Transpose <perm = [0, 1, 3, 2]> (a)\nx = MatMul (q, t)\n" + _END,
        "one",
        initializers=_INTEGERS,
        shapes=("B,6,L,7", "B,S,6,7", "B,6,S,13", "B,6,L,13"),
        says="the keys are `a`",
    ),
    "a Softmax over the queries": Decoy(
        _SCORES + "p = Softmax <axis = -2> (s)\ny = MatMul (p, v)\n", "other-axis"
    ),
    "a Softmax over heads, queries and keys": Decoy(
        _TURNED + "s = MatMul (q, t)\np = Softmax <axis = 1> (s)\ny = MatMul (p, v)\n",
        "other-axis",
        opset=12,
    ),
    "probabilities exchanged with queries": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\no = Transpose <perm = [0, 1, 3, 2]> (p)\n"
        + "y = MatMul (o, v)\n",
        "other-layout",
        shapes=_SQUARE,
    ),
    "scores exchanged before the Softmax": Decoy(
        "t = Transpose <perm = [0, 1, 3, 2]> (q)\ns = MatMul (k, t)\n"
        "x = Transpose <perm = [0, 1, 3, 2]> (s)\n" + _END,
        "one",
        says="the queries are `q`",
    ),
    "scores of the keys for the queries": Decoy(
        "t = Transpose <perm = [0, 1, 3, 2]> (q)\nx = MatMul (k, t)\n" + _END,
        "one",
        shapes=_SQUARE,
        says="the queries are `k`",
    ),
    "a Dropout between": Decoy(
        _SCORES + "p = Softmax <axis = -1> (s)\nd = Dropout (p)\ny = MatMul (d, v)\n", "no"
    ),
    "a factor of the probabilities": Decoy(
        _SCORES + "p = Softmax <axis = -1> (s)\nd = Mul (p, p)\ny = MatMul (d, v)\n", "no"
    ),
    "a sink": Decoy(
        _SCORES
        + "x = Concat <axis = 3> (s, w)\np = Softmax <axis = -1> (x)\n"
        + "d = Slice (p, c0, e, c3)\ny = MatMul (d, v)\n",
        "no",
        inputs="float[B,6,L,1] w",
        initializers="int64[1] c0 = {0}, int64[1] e = {-1}, int64[1] c3 = {3}",
    ),
    "a router": Decoy(
        "s = MatMul (q, w)\np = Softmax <axis = -1> (s)\ny = MatMul (p, v)\n",
        "no",
        initializers="float[7,2] w = {0,1,2,3,4,5,6,7,8,9,10,11,12,13}",
        shapes=("B,6,L,7", "B,6,S,7", "B,6,2,13", "B,6,L,13"),
    ),
    "a softcap of two numbers": Decoy(
        _SCORES + "a = Div (s, c)\nb = Tanh (a)\nx = Mul (b, d)\n" + _END,
        "one",
        initializers="float c = {2.0}, float d = {3.0}",
        says="capped at 3",
    ),
    "a Tanh alone": Decoy(_SCORES + "x = Tanh (s)\n" + _END, "one", says="capped at 1"),
    "a softcap below zero": Decoy(
        _SCORES + "b = Tanh (s)\nx = Mul (b, d)\n" + _END,
        "unknown-scores",
        initializers="float d = {-3.0}",
    ),
    "two softcaps": Decoy(_SCORES + "b = Tanh (s)\nx = Tanh (b)\n" + _END, "unknown-scores"),
    "a mask before the softcap": Decoy(
        _SCORES + "a = Add (s, m)\nx = Tanh (a)\n" + _END,
        "mask-in-softcap",
        inputs="float[B,1,L,S] m",
    ),
    "hidden keys before the softcap": Decoy(
        _SCORES + "a = Where (m, s, f)\nx = Tanh (a)\n" + _END,
        "mask-in-softcap",
        inputs="bool[B,1,L,S] m",
        initializers="float f = {-inf}",
    ),
    "scores clipped": Decoy(
        _SCORES + "x = Clip (s, f)\n" + _END, "no", initializers="float f = {-1.0}"
    ),
    "a mask that is multiplied": Decoy(
        _SCORES + "x = Mul (s, m)\n" + _END, "unknown-scale", inputs="float[B,1,L,S] m"
    ),
    "hidden keys at -10000": Decoy(
        _SCORES + "x = Where (m, s, f)\n" + _END,
        "mask-value",
        inputs="bool[B,1,L,S] m",
        initializers="float f = {-10000.0}",
    ),
    "hidden keys at 0": Decoy(
        _SCORES + "x = Where (m, s, f)\n" + _END,
        "mask-value",
        inputs="bool[B,1,L,S] m",
        initializers="float f = {0.0}",
    ),
    "hidden keys at infinity": Decoy(
        _SCORES + "x = Where (m, s, f)\n" + _END,
        "mask-value",
        inputs="bool[B,1,L,S] m",
        initializers="float f = {inf}",
    ),
    "hidden keys at the lowest of float16": Decoy(
        _SCORES + "x = Where (m, s, f)\n" + _END,
        "dead-rows",
        inputs="bool[B,1,L,S] m",
        initializers="float16 f = {64511}",
        dtype="float16",
    ),
    "a bias below the lowest number": Decoy(
        _SCORES + "a = Add (s, w)\nx = Where (m, a, f)\n" + _END,
        "dead-rows",
        inputs="bool[B,1,L,S] m, float[B,1,L,S] w",
        initializers="float f = {-3.4028234663852886e38}",
    ),
    "other scores where keys are hidden": Decoy(
        _SCORES + "x = Where (m, s, w)\n" + _END,
        "unknown-fill",
        inputs="bool[B,1,L,S] m, float[B,1,L,S] w",
    ),
    "scores rounded to float16": Decoy(
        _SCORES + "h = Cast <to = 10> (s)\nx = Cast <to = 1> (h)\n" + _END, "rounded-scores"
    ),
    "probabilities rounded to float16": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nh = Cast <to = 10> (p)\no = Cast <to = 1> (h)\n"
        + "y = MatMul (o, v)\n",
        "other-layout",
    ),
    "probabilities of float16 in float32 and back": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nh = Cast <to = 1> (p)\no = Cast <to = 10> (h)\n"
        + "y = MatMul (o, v)\n",
        "one",
        dtype="float16",
    ),
    "probabilities of float16 in bfloat16 and back": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nh = Cast <to = 16> (p)\no = Cast <to = 10> (h)\n"
        + "y = MatMul (o, v)\n",
        "other-layout",
        dtype="float16",
    ),
    "values in another type": Decoy(
        _SCORES
        + "p = Softmax <axis = -1> (s)\nh = Cast <to = 11> (p)\nw = Cast <to = 11> (v)\n"
        + "o = MatMul (h, w)\ny = Cast <to = 1> (o)\n",
        "types-differ",
    ),
    "a mask in another type": Decoy(
        _SCORES + "a = Cast <to = 1> (s)\nx = Add (a, m)\np = Softmax <axis = -1> (x)\n"
        "h = Cast <to = 10> (p)\ny = MatMul (h, v)\n",
        "mask-type",
        inputs="float[B,1,L,S] m",
        dtype="float16",
    ),
    "keys for all of a batch": Decoy(
        _SCORES.replace("s =", "x =") + _END,
        "other-layout",
        shapes=("B,6,L,7", "1,6,S,7", "B,6,S,13", "B,6,L,13"),
    ),
    "values for all of a batch": Decoy(
        _SCORES.replace("s =", "x =") + _END,
        "other-layout",
        shapes=("B,6,L,7", "B,6,S,7", "1,6,S,13", "B,6,L,13"),
    ),
    "queries for all heads": Decoy(
        _SCORES.replace("s =", "x =") + _END,
        "other-layout",
        shapes=("B,1,L,7", "B,6,S,7", "B,6,S,13", "B,6,L,13"),
    ),
    "a batch that may be broadcast": Decoy(
        _SCORES.replace("s =", "x =") + _END,
        "sizes-unrelated",
        shapes=("B,6,L,7", "C,6,S,7", "B,6,S,13", "B,6,L,13"),
    ),
    "a mask that may be broadcast": Decoy(
        _SCORES + "x = Add (s, m)\n" + _END,
        "sizes-unrelated",
        inputs="float[B,1,L,T] m",
    ),
    "a mask of more heads than the scores": Decoy(
        _SCORES + "x = Add (s, m)\n" + _END,
        "other-layout",
        inputs="float[B,6,L,S] m",
        shapes=("B,1,L,7", "B,1,S,7", "B,6,S,13", "B,6,L,13"),
    ),
    "ALiBi": Decoy(
        _SCORES + "x = Add (s, w)\n" + _END, "one", inputs="float[1,6,1,S] w", says="kept"
    ),
    "ALiBi of other keys": Decoy(
        _SCORES + "x = Add (s, w)\n" + _END, "sizes-unrelated", inputs="float[1,6,1,T] w"
    ),
    "ALiBi that scales": Decoy(
        _SCORES + "x = Mul (s, w)\n" + _END, "unknown-scale", inputs="float[1,6,1,S] w"
    ),
    "cross attention, with the causal mask of the queries alone": Decoy(
        _hidden("c = LessOrEqual (r, i)"), "sizes-unrelated", initializers=_COUNTS
    ),
    "cross attention, causal over as many keys as there are": Decoy(
        _hidden("c = LessOrEqual (r, i)")
        .replace("(zero, l0, one)", "(zero, n0, one)")
        .replace(
            "r = Range",
            "n1 = Shape <start = 2, end = 3> (k)\nn0 = Squeeze (n1)\n"
            "w = Range (zero, l0, one)\nr = Range",
        )
        .replace("Unsqueeze (r, c1)", "Unsqueeze (w, c1)"),
        "one",
        initializers=_COUNTS,
        says="kept",
    ),
    "queries and keys added": Decoy(
        _SCORES + "u = MatMul (q, t)\nx = Add (s, u)\n" + _END, "one", says="times 1"
    ),
    "a causal mask": Decoy(
        _hidden("c = LessOrEqual (r, i)"),
        "one",
        initializers=_COUNTS,
        shapes=_SQUARE,
        says="causal",
    ),
    "a causal mask that hides the key itself, but of the first": Decoy(
        _hidden("a = Less (r, i)\nz = Equal (r, zero)\nc = Or (a, z)"),
        "one",
        initializers=_COUNTS,
        shapes=_SQUARE,
        says="kept",
    ),
    "a causal mask that shows the next key": Decoy(
        _hidden("o = Add (i, one)\nc = LessOrEqual (r, o)"),
        "one",
        initializers=_COUNTS,
        shapes=_SQUARE,
        says="kept",
    ),
    "a window": Decoy(
        _hidden("a = LessOrEqual (r, i)\no = Sub (i, c3)\nw = Greater (r, o)\nc = And (a, w)"),
        "one",
        initializers=_COUNTS,
        shapes=_SQUARE,
        says="kept",
    ),
    "a causal mask the other way round": Decoy(
        _hidden("c = GreaterOrEqual (r, i)"),
        "one",
        initializers=_COUNTS,
        shapes=_SQUARE,
        says="kept",
    ),
    "a causal mask of other queries than keys": Decoy(
        _hidden("c = LessOrEqual (r, i)").replace("(q)\nl0", "(k)\nl0"),
        "one",
        initializers=_COUNTS,
        shapes=("B,6,4,7", "B,6,4,7", "B,6,4,13", "B,6,4,13"),
        says="causal",
    ),
    "a causal mask at -10000": Decoy(
        _hidden("c = LessOrEqual (r, i)", "w"),
        "one",
        initializers=_COUNTS + ", float w = {-10000.0}",
        shapes=_SQUARE,
        says="kept",
    ),
}
