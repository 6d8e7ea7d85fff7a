"""Which layer of a decoder a cache belongs to, and whether it holds keys or values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onnx_kvtool.lint.facts.directions import DIRECTIONS

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.caches import Cache
    from onnx_kvtool.lint.context import Context

__all__ = ["Place", "Role", "key_value_pairs", "layered", "place_of"]

Role = Literal["key", "value"]

_BOTH = re.compile(r"key_?values?", re.IGNORECASE)
_TOKENS = re.compile(r"[A-Za-z]+|[0-9]+")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("key", "keys", "k"), "key"),
    **dict.fromkeys(("value", "values", "v"), "value"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """What the name of a cache says of it.

    Attributes:
        stream: What is left of the name: `decoder`, `cross`; mostly nothing.
        layer: Number of the layer; None where the name has none.
        role: Whether it holds keys or values; None where the name does not say. A single letter
            says so beside a word such as `past` or `cache`; alone it is `v9_0` of any graph.
        is_cache: Whether it has such a word, so that its number is that of a layer.
    """

    stream: tuple[str, ...]
    layer: int | None
    role: Role | None
    is_cache: bool = False


def place_of(name: str | None) -> Place:
    """Read the name of a past or of a present: `past_key_values.3.key`, `updated_key_cache.3`."""
    tokens = [t.lower() for t in _TOKENS.findall(_BOTH.sub("", name or ""))]
    layer = next((int(t) for t in tokens if t.isdigit()), None)
    is_cache = not DIRECTIONS.isdisjoint(tokens)
    roles = [t for t in tokens if t in _ROLES and (is_cache or len(t) > 1)]
    stream = tuple(t for t in tokens if not t.isdigit() and t not in _ROLES and t not in DIRECTIONS)
    return Place(stream, layer, _ROLES[roles[-1]] if roles else None, is_cache)


def layered(caches: Sequence[Cache]) -> Iterator[tuple[Place, Cache]]:
    """Yield the caches whose past is an input, or else whose present is an output, as named."""
    for cache in caches:
        past = cache.past_value
        name = cache.past if past is not None and past.is_graph_input() else cache.present
        yield place_of(name), cache


def key_value_pairs(context: Context) -> Iterator[tuple[Cache, Cache]]:
    """Yield the caches of keys and of values that belong to one layer, each pair once.

    An Attention that reads both says so; where none does, their names do.
    """
    from onnx_kvtool.ops.attention import Attention

    by_node = {c.node: c for c in context.caches if c.kind == "tensor_scatter"}
    seen: set[tuple[int, int]] = set()
    paired: set[int] = set()
    for site in context.sites_of("Attention") if by_node else ():
        view = site.view(Attention)
        if view is None:
            continue
        key, value = (_cache_behind(operand, by_node) for operand in (view.key, view.value))
        if key is None or value is None or key is value or (id(key), id(value)) in seen:
            continue
        seen.add((id(key), id(value)))
        paired.update((id(key), id(value)))
        yield key, value
    named: dict[tuple[object, ...], dict[Role, Cache]] = {}
    for place, cache in layered(context.caches):
        if place.role is not None and id(cache) not in paired:
            named.setdefault((place.stream, place.layer), {}).setdefault(place.role, cache)
    for roles in named.values():
        if len(roles) == 2:
            yield roles["key"], roles["value"]


def _cache_behind(value: ir.Value, by_node: dict[ir.Node, Cache]) -> Cache | None:
    from onnx_kvtool.lint.facts.past import scatter_behind

    node = scatter_behind(value)
    return None if node is None else by_node.get(node)
