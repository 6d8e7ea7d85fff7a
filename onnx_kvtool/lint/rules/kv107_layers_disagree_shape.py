"""KV107: the cache of one layer has another shape than those of all the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["LayersDisagreeShape"]


class LayersDisagreeShape(ModelRule):
    """The cache of one layer has a shape that no other layer has, in no repeating pattern.

    ## What it does

    Lines up the caches of keys, and those of values, by layer and compares their shapes. Layers of
    several shapes are fine as long as the shapes repeat: every sixth layer with a long cache,
    global layers with larger heads. So are different updates in one model, and a last or first
    layer that differs, which may be a pattern that is cut off. What is left is a single layer among
    four or more whose shape occurs nowhere else.

    ## Why is this bad?

    Models with mixed caches exist, but their layers follow a rule. A single odd one is mostly a
    slip of the exporter, such as a wrong number of heads or a capacity that was not replaced, and
    makes the caller allocate buffers that fit all layers but one.

    ## References

    - Models with mixed head sizes and shared caches are legitimate; runtimes read the shapes of
      each layer from the inputs of the model
      ([onnxruntime-genai](https://onnxruntime.ai/docs/genai/reference/config.html)).
    """

    code = "KV107"
    name = "layers-disagree-shape"
    severity = "warning"
    basis = "heuristic"

    bad = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] "key_cache.0", float[2, 3, 9, 5] "key_cache.1",
            float[2, 3, 7, 5] "key_cache.2", float[2, 3, 7, 5] "key_cache.3",
            float[2, 3, 1, 5] key, int64[2] start)
            => (float[2, 3, 7, 5] "updated_key_cache.0", float[2, 3, 9, 5] "updated_key_cache.1",
                float[2, 3, 7, 5] "updated_key_cache.2", float[2, 3, 7, 5] "updated_key_cache.3") {
            [layer0] "updated_key_cache.0" = TensorScatter ("key_cache.0", key, start)
            [layer1] "updated_key_cache.1" = TensorScatter ("key_cache.1", key, start)
            [layer2] "updated_key_cache.2" = TensorScatter ("key_cache.2", key, start)
            [layer3] "updated_key_cache.3" = TensorScatter ("key_cache.3", key, start)
        }
    """
    good = """
        <ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 7, 5] "key_cache.0", float[2, 3, 9, 5] "key_cache.1",
            float[2, 3, 7, 5] "key_cache.2", float[2, 3, 9, 5] "key_cache.3",
            float[2, 3, 1, 5] key, int64[2] start)
            => (float[2, 3, 7, 5] "updated_key_cache.0", float[2, 3, 9, 5] "updated_key_cache.1",
                float[2, 3, 7, 5] "updated_key_cache.2", float[2, 3, 9, 5] "updated_key_cache.3") {
            [layer0] "updated_key_cache.0" = TensorScatter ("key_cache.0", key, start)
            [layer1] "updated_key_cache.1" = TensorScatter ("key_cache.1", key, start)
            [layer2] "updated_key_cache.2" = TensorScatter ("key_cache.2", key, start)
            [layer3] "updated_key_cache.3" = TensorScatter ("key_cache.3", key, start)
        }
    """

    def check(self, context: Context) -> Iterator[Finding]:
        """Compare the shapes of the layers, for each kind of update and role by itself."""
        from onnx_kvtool.lint.facts.layers import layered
        from onnx_kvtool.lint.facts.words import shape_words

        groups: dict[tuple[object, ...], list[Cache]] = {}
        for place, cache in layered(context.caches):
            if cache.shape is not None:
                key = (cache.kind, place.stream, place.role, len(cache.shape))
                groups.setdefault(key, []).append(cache)
        for caches in groups.values():
            shapes = [_numbers(cache) for cache in caches]
            odd = _odd_one(shapes)
            if odd is None:
                continue
            usual, count = Counter(shapes).most_common(1)[0]
            other = next(c for c, shape in zip(caches, shapes, strict=True) if shape == usual)
            yield self.found(
                caches[odd].location,
                f"the cache `{caches[odd].past or caches[odd].present}` has shape "
                f"{shape_words(caches[odd].shape)}, and {count} other layers have "
                f"{shape_words(other.shape)}",
                help="give it the shape of the others, or ignore this finding for a layer that is "
                "meant to differ",
            )


def _numbers(cache: Cache) -> tuple[int | None, ...]:
    """Return the shape without names, which may differ for one size."""
    return tuple(d if isinstance(d, int) else None for d in cache.shape or ())


def _odd_one(shapes: Sequence[tuple[int | None, ...]]) -> int | None:
    """Return the position of the one shape that stands alone; None where there is a pattern."""
    count = len(shapes)
    if count < 4 or _period(shapes) <= count // 2:
        return None
    single = [shape for shape, times in Counter(shapes).items() if times == 1]
    if len(single) != 1 or len(set(shapes)) != 2:
        return None
    at = shapes.index(single[0])
    return at if 0 < at < count - 1 else None


def _period(shapes: Sequence[tuple[int | None, ...]]) -> int:
    """Return the length of the shortest stretch whose repetition gives `shapes`.

    Linear: the longest proper border of the sequence, as in Knuth, Morris and Pratt.
    """
    border = [0] * len(shapes)
    for i in range(1, len(shapes)):
        k = border[i - 1]
        while k and shapes[i] != shapes[k]:
            k = border[k - 1]
        border[i] = k + 1 if shapes[i] == shapes[k] else k
    return len(shapes) - border[-1]
