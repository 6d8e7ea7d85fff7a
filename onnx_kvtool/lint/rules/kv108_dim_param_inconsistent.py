"""KV108: one size of the caches has several names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding, Fix

__all__ = ["DimParamInconsistent"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MADE_UP = re.compile(r"(.*_)?([sud]|unk_*|dim_?|axis_?)\d+")
"""What exporters call a dimension that nobody named: `s77`, `pos_d0`, `MatMullogits_dim_1`."""


class DimParamInconsistent(ModelRule):
    """One logical dimension of the caches carries different names.

    ## What it does

    Compares the symbolic dimensions that the model declares for its caches, where they must be one
    size: the batch of all caches, the sequence dimension of the key and the value of a layer, and
    each dimension of a past and of its present, but for the sequence dimension of a cache that
    grows or keeps its last rows, or of an operator that counts past and present apart.

    ## Why is this bad?

    A name is the only way in which a model says that two sizes are equal. With two names for one
    size, onnxruntime, which shares buffers between values whose dimensions have equal names, cannot
    plan one buffer for both, shape inference knows less, and a caller sees more free sizes than
    there are.

    ## Fix safety

    The fix is safe: it replaces the rarer name everywhere in the model, expressions included, by
    the one that most caches have. A name that says something wins over one that an exporter made
    up, such as `s77` or `pos_d0`, and a batch with none but such names becomes `batch`. Types,
    order and names of inputs and outputs stay as they are, and every input that the model computes
    with is still taken.

    ## References

    - [onnxruntime#21213](https://github.com/microsoft/onnxruntime/issues/21213): buffers are reused
      by equal `dim_param`.
    - [IR of ONNX](https://github.com/onnx/onnx/blob/main/docs/IR.md#static-tensor-shapes):
      dimension variables of one name have one value.
    """

    code = "KV108"
    name = "dim-param-inconsistent"
    severity = "warning"
    basis = "heuristic"
    fix = "safe"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[batch, 3, 7, 5] past_key, float[B, 3, 7, 5] past_value,
            float[batch, 3, L, 5] key, float[B, 3, L, 5] value, int64[batch] start)
            => (float[batch, 3, 7, 5] present_key, float[B, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[batch, 3, 7, 5] past_key, float[batch, 3, 7, 5] past_value,
            float[batch, 3, L, 5] key, float[batch, 3, L, 5] value, int64[batch] start)
            => (float[batch, 3, 7, 5] present_key, float[batch, 3, 7, 5] present_value) {
            [keys] present_key = TensorScatter (past_key, key, start)
            [values] present_value = TensorScatter (past_value, value, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare names of the batch, of key and value, and of past and present."""
        from onnx_kvtool.core.quantity import enumerated

        reported: set[frozenset[str]] = set()
        batches = list(_batches(context))
        batch = batches[0][2] if batches else None
        for cache, what, names in (*batches, *_pairs(context), *_ends(context)):
            if len(set(names)) < 2 or frozenset(names) in reported:
                continue
            reported.add(frozenset(names))
            ranked = [name for name, _ in Counter(names).most_common()]
            kept = _best(ranked, context.model, is_batch=names is batch)
            yield self.found(
                cache.location,
                f"{what} has {len(ranked)} names: {enumerated(ranked)}",
                help=f"call it `{kept}` everywhere",
                fix=_fix(context.model, kept, [name for name in ranked if name != kept]),
            )


_Names = tuple["Cache", str, Sequence[str]]


def _declared(value: ir.Value | None, axis: int | None) -> str | None:
    """Return the plain name that a dimension of a graph input or output is declared with."""
    from onnx_kvtool.symbolic.dims import dims_of

    dims = dims_of(value)
    if dims is None or axis is None or not 0 <= axis < len(dims):
        return None
    dim = dims[axis]
    return dim if isinstance(dim, str) and _NAME.fullmatch(dim) else None


def _batches(context: Context) -> Iterator[_Names]:
    held = [c for c in context.caches if _is_input(c)]
    names = [(c, _declared(c.past_value, c.batch_axis)) for c in held]
    known = [(c, name) for c, name in names if name is not None]
    if known:
        usual = Counter(name for _, name in known).most_common(1)[0][0]
        odd = next((c for c, name in known if name != usual), known[0][0])
        what = f"the batch dimension of the caches, here of `{odd.past}`,"
        yield odd, what, [name for _, name in known]


def _pairs(context: Context) -> Iterator[_Names]:
    from onnx_kvtool.lint.facts.layers import key_value_pairs

    for key, value in key_value_pairs(context):
        if key.kind != value.kind or not (_is_input(key) and _is_input(value)):
            continue
        one, other = _declared(key.past_value, key.axis), _declared(value.past_value, value.axis)
        if one is not None and other is not None:
            what = f"the sequence dimension of `{key.past}` and `{value.past}`"
            yield value, what, [one, other]


def _ends(context: Context) -> Iterator[_Names]:
    from onnx_kvtool.analysis.caches.windows import rolling

    outputs = {value.name: value for value in context.model.graph.outputs}
    # One that keeps its last rows has more of them after a step, until it is full.
    windows = {id(cache) for cache in rolling(context.caches) if cache.kind == "concat"}
    for cache in context.caches:
        present = outputs.get(cache.present)
        if present is None or not _is_input(cache):
            continue
        is_counted_apart = (
            cache.is_growing
            or id(cache) in windows
            or cache.kind in ("group_query_attention", "attention")
        )
        for axis in range(len(cache.shape or ())):
            if is_counted_apart and (axis == cache.axis or cache.axis is None):
                continue
            one, other = _declared(cache.past_value, axis), _declared(present, axis)
            if one is not None and other is not None:
                what = f"dimension {axis} of `{cache.past}` and its present `{present.name}`"
                yield cache, what, [one, other]


def _is_input(cache: Cache) -> bool:
    return cache.past_value is not None and cache.past_value.is_graph_input()


def _best(ranked: Sequence[str], model: ir.Model, *, is_batch: bool) -> str:
    """Return what to call a dimension that has these names, the most frequent first."""
    given = [name for name in ranked if not _MADE_UP.fullmatch(name)]
    if given:
        return given[0]
    return "batch" if is_batch and "batch" not in _words(model) else ranked[0]


def _words(model: ir.Model) -> set[str]:
    """Return the names that stand in dimensions of the model."""
    from onnx_kvtool.symbolic.sizes import names_in

    texts = {
        dim.value
        for value in _values(model)
        if value.shape is not None and not value.shape.is_static()
        for dim in value.shape
        if not isinstance(dim, int) and dim.value is not None
    }
    return {word for text in texts for word in names_in(text)}


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the values that can have a shape; an output may be made by no node."""
    from onnx_kvtool.core.walk import values

    yield from values(model)
    yield from model.graph.outputs


def _fix(model: ir.Model, kept: str, others: Sequence[str]) -> Fix:
    from onnx_kvtool.lint.finding import Fix

    what = ", ".join(f"`{name}`" for name in others)
    return Fix("safe", f"rename dimension {what} to `{kept}`", _renaming(model, kept, others))


def _renaming(model: ir.Model, kept: str, others: Sequence[str]) -> Callable[[], None]:
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, others)) + r")\b")

    def apply() -> None:
        import onnx_ir as ir

        from onnx_kvtool.symbolic.sizes import names_in

        def renamed(dim: int | str | None) -> int | str | None:
            # Not a part of another name, such as `batch-size`.
            named = isinstance(dim, str) and not set(others).isdisjoint(names_in(dim))
            return pattern.sub(kept, str(dim)) if named else dim

        for value in _values(model):
            if value.shape is not None and not value.shape.is_static():
                dims = [d if isinstance(d, int) else d.value for d in value.shape]
                new = [renamed(dim) for dim in dims]
                if new != dims:
                    value.shape = ir.Shape(new)

    return apply
