"""Layers of a decoder by the names of their caches, and the readers of a past."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches import Cache
from onnx_kvtool.core.walk import producer, subgraphs, upwards
from onnx_kvtool.lint.context import Context
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_input

# Names of caches: layer, role, past or present, and the pairs of past and present.


DIRECTIONS = frozenset(
    {
        "past", "present", "updated", "update", "new", "old", "in", "out", "input",
        "output", "inputs", "outputs", "next", "prev", "previous", "cache", "caches",
        "cached", "kv",
    }
)  # fmt: skip


GENAI_CONFIG = "genai_config.json"
"""File beside a model where onnxruntime-genai looks for the names of its caches."""

_MOST_BYTES = 1 << 20
_LAYER = "%d"


class Template(NamedTuple):
    """A naming scheme of caches: names of an input and its output, with `%d` for the layer."""

    past: str
    present: str


def layer_in(template: str, name: str) -> str | None:
    """Return the layer that stands in a name for `%d`; None if it does not match the template."""
    pattern = re.escape(template).replace(_LAYER, "([0-9]+)", 1)
    found = re.fullmatch(pattern, name)
    return None if found is None else "".join(found.groups())


def _both(past: str, present: str) -> Iterator[Template]:
    for role in ("key", "value"):
        yield Template(past.replace("{}", role), present.replace("{}", role))


TEMPLATES: tuple[Template, ...] = (
    *_both("past_key_values.%d.{}", "present.%d.{}"),  # optimum and onnxruntime-genai
    *_both("past_key_values.%d.decoder.{}", "present.%d.decoder.{}"),  # optimum
    *_both("past_key_values.%d.encoder.{}", "present.%d.encoder.{}"),
    *_both("{}_cache.%d", "updated_{}_cache.%d"),  # mobius
    *_both("past_{}_self_%d", "present_{}_self_%d"),  # onnxruntime-genai
    *_both("past_{}_cross_%d", "present_{}_cross_%d"),
    *_both("past_{}_%d", "present_{}_%d"),  # onnxruntime
    Template("past_%d", "present_%d"),
)
"""Names that tools read."""


def same_but_direction(past: str, present: str) -> bool:
    """Return whether two names differ only in words such as `past` and `present`.

    No known template pairs such names, but they are unmistakable.
    """

    def rest(name: str) -> list[str]:
        tokens = [t.lower() for t in re.findall(r"[A-Za-z]+|[0-9]+", name)]
        tokens = [t for t in tokens if t not in DIRECTIONS]
        # `past_key_values.0.key` and `present.0.key`: the first words name all caches together.
        return tokens[2:] if tokens[:2] == ["key", "values"] else tokens

    return past != present and sorted(rest(past)) == sorted(rest(present))


def counterpart(past: str, templates: Iterable[Template]) -> str | None:
    """Return the name of the present of `past`; None if no template matches."""
    for template in templates:
        if (layer := layer_in(template.past, past)) is not None:
            return template.present.replace(_LAYER, layer)
    return None


def configured_templates(path: str) -> tuple[Template, ...]:
    """Return the templates of the `genai_config.json` that lies beside a model and names it.

    Return none if there is no such file, or if it is no configuration of this model.
    """
    if path in ("", "-"):
        return ()
    place = os.path.join(os.path.dirname(os.path.abspath(path)), GENAI_CONFIG)
    try:
        if not os.path.isfile(place) or os.path.getsize(place) > _MOST_BYTES:
            return ()
        with open(place, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError):
        return ()  # a check of a model does not report a broken configuration
    sections = _get(config, "model")
    return tuple(
        template
        for section in sections.values()
        if isinstance(section, Mapping) and section.get("filename") == os.path.basename(path)
        for template in _of_section(section)
    )


def _of_section(section: Mapping[str, Any]) -> Iterator[Template]:
    inputs, outputs = _get(section, "inputs"), _get(section, "outputs")
    for past_field, given in inputs.items():
        if not past_field.endswith("_names") or "past" not in past_field:
            continue
        present = outputs.get(past_field.replace("past", "present", 1))
        if isinstance(given, str) and isinstance(present, str):
            yield Template(given, present)


def _get(config: Any, key: str) -> Mapping[str, Any]:
    found = config.get(key) if isinstance(config, Mapping) else None
    return found if isinstance(found, Mapping) else {}


Role = Literal["key", "value"]

_BOTH = re.compile(r"key_?values?", re.IGNORECASE)
_MOST_DIGITS = 9  # of the number of a layer
_TOKENS = re.compile(r"[A-Za-z]+|[0-9]+")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("key", "keys", "k"), "key"),
    **dict.fromkeys(("value", "values", "v"), "value"),
}


class Place(NamedTuple):
    """The layer and role that a cache's name states.

    Attributes:
        stream: The rest of the name: `decoder`, `cross`; mostly empty.
        layer: Number of the layer; None if the name has none.
        role: Whether it holds keys or values; None if the name does not say. A single letter counts
            only beside a word such as `past` or `cache`: `v9_0` may be any value.
        is_cache: Whether it has such a word, so that its number is that of a layer.
    """

    stream: tuple[str, ...]
    layer: int | None
    role: Role | None
    is_cache: bool = False


def place_of(name: str | None) -> Place:
    """Read the name of a past or of a present: `past_key_values.3.key`, `updated_key_cache.3`."""
    tokens = [t.lower() for t in _TOKENS.findall(_BOTH.sub("", name or ""))]
    layer = next((int(t) for t in tokens if t.isdigit() and len(t) <= _MOST_DIGITS), None)
    is_cache = not DIRECTIONS.isdisjoint(tokens)
    roles = [t for t in tokens if t in _ROLES and (is_cache or len(t) > 1)]
    stream = tuple(t for t in tokens if not t.isdigit() and t not in _ROLES and t not in DIRECTIONS)
    return Place(stream, layer, _ROLES[roles[-1]] if roles else None, is_cache)


def layered(caches: Sequence[Cache]) -> Iterator[tuple[Place, Cache]]:
    """Yield the caches with a past input or a present output, with their names."""
    for cache in caches:
        past = cache.past_value
        name = cache.past if past is not None and past.is_graph_input() else cache.present
        yield place_of(name), cache


def key_value_pairs(context: Context) -> Iterator[tuple[Cache, Cache]]:
    """Yield the caches of keys and of values that belong to one layer, each pair once.

    An Attention that reads both pairs them; otherwise their names do.
    """
    from onnx_kvtool.ops.operators import Attention

    by_node: dict[ir.Node | None, Cache] = {cache.node: cache for cache in context.scatters}
    pairs: dict[tuple[int, int], tuple[Cache, Cache]] = {}
    for _, view in context.views(Attention):
        key, value = (by_node.get(scatter_behind(operand)) for operand in (view.key, view.value))
        if key is not None and value is not None and key is not value:
            pairs[id(key), id(value)] = key, value
    yield from pairs.values()
    paired = {each for pair in pairs for each in pair}
    named: dict[tuple[object, ...], dict[Role, Cache]] = {}
    for place, cache in layered(context.caches):
        if place.role is not None and id(cache) not in paired:
            named.setdefault((place.stream, place.layer), {}).setdefault(place.role, cache)
    for roles in named.values():
        if len(roles) == 2:
            yield roles["key"], roles["value"]


# Other uses of the past of a cache.


_ARRANGING = (Trait.REARRANGES, Trait.CASTS, Trait.REPEATS)
_FAR = 8

Level = tuple[ir.Value, ir.Node, int]
"""A value that holds the past, the node that takes it towards the update, and at which input."""


def through(value: ir.Value) -> ir.Value:
    """Return the value that `value` copies through Identity nodes, or `value` itself."""
    *_, (source, _) = upwards(value, _copied)
    return source


def levels(cache: Cache, context: Context) -> Iterator[Level]:
    """Yield the past of a TensorScatter in its own graph, then in each caller of the function.

    Identity nodes are skipped. The last level is in the main graph, unless a function body computes
    the past.
    """
    node, index = cache.node, 0
    calls = list(cache.calls)
    while True:
        value = given_input(node, index)
        if value is None:
            return
        root = through(value)
        yield root, node, index
        if not calls:
            return
        call = calls.pop()
        function = context.model.functions[call.op_identifier()]
        found = next((i for i, v in enumerate(function.inputs) if v is root), None)
        if found is None:
            return
        node, index = call, found


def readers(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Yield the readers of the content of `value`, in bodies too, through Identity nodes.

    A reader of its shape alone does not count.
    """
    for copy in copies(value):
        for reader, index in copy.uses():
            if _is_identity(reader):
                continue
            if Trait.READS_SHAPE not in traits(reader):
                yield reader, index


def copies(value: ir.Value) -> Iterator[ir.Value]:
    """Yield a value and its copies by Identity, those in bodies included."""
    stack, seen = [value], {id(value)}
    while stack:
        copy = stack.pop()
        yield copy
        for reader, _ in copy.uses():
            if _is_identity(reader):
                new = [v for v in reader.outputs if id(v) not in seen]
                seen.update(map(id, new))
                stack.extend(new)


def _copied(node: ir.Node) -> ir.Value | None:
    return given_input(node, 0) if _is_identity(node) else None


def _is_identity(node: ir.Node) -> bool:
    return Trait.SAME in traits(node)


def scatter_behind(value: ir.Value) -> ir.Node | None:
    """Return the TensorScatter that makes `value`, through nodes that only rearrange its present.

    Up to eight such nodes are skipped; one that selects rows, such as Slice, is not.
    """
    current: ir.Value | None = value
    for _ in range(_FAR):
        node = producer(current)
        if node is None or node.domain:
            return None
        if node.op_type == "TensorScatter":
            return node
        if not traits(node).any(*_ARRANGING) or not node.inputs:
            return None
        current = node.inputs[0]
    return None


class Branches:
    """The branches of If nodes around nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @functools.cached_property
    def _owners(self) -> dict[int, ir.Node]:
        """The node that owns each body."""
        return {
            id(body): site.node
            for site in self._context.sites
            if site.node.attributes.data
            for _, body in subgraphs(site.node)
        }

    def exclude(self, one: ir.Node, other: ir.Node) -> bool:
        """Return whether the two are in different branches of one If, so that only one runs."""
        here, there = self._way(one), self._way(other)
        return any(there.get(node, branch) != branch for node, branch in here.items())

    def _way(self, node: ir.Node) -> dict[ir.Node, int]:
        way: dict[ir.Node, int] = {}
        graph = node.graph
        while graph is not None and (owner := self._owners.get(id(graph))) is not None:
            if owner.op_type == "If":
                way[owner] = id(graph)
            graph = owner.graph
        return way
