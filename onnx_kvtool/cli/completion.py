"""What a shell offers for a word that is not finished.

Nothing here reads weights or imports onnx: a key was pressed, and somebody waits. What it needs
beyond click, each function imports.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from onnx_kvtool.core.files.outline import Outline

__all__ = [
    "assumptions",
    "cache_dtypes",
    "codes",
    "dims",
    "inputs",
    "models",
    "nodes",
    "operators",
    "replaceable",
    "rules",
    "targets",
    "values",
]

_CACHE_DTYPES = (
    "float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2", "int8", "uint8", "int4", "uint4"
)  # fmt: skip

Items: TypeAlias = "list[CompletionItem[str]]"  # not generic in click 8.2


def _items(texts: Iterable[tuple[str, str | None]], incomplete: str) -> Items:
    start = incomplete.lower()
    return [CompletionItem(t, help=help) for t, help in texts if t.lower().startswith(start)]


def _plain(texts: Iterable[str], incomplete: str) -> Items:
    return _items(((text, None) for text in texts), incomplete)


def _listed(complete: Callable[[str], Items], incomplete: str) -> Items:
    """Complete the last word of a list with commas; those before it stay."""
    done, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{done}{comma}{i.value}", help=i.help) for i in complete(last)]


def models(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the models that a path may lead to; every file where directories come into play."""
    found = sorted(glob.glob(f"{glob.escape(incomplete)}*"))
    names = [path for path in found if path.endswith(".onnx")]
    is_simple = not any(os.path.isdir(path) or path.split() != [path] for path in found)
    if names and is_simple and not incomplete.startswith("~"):
        return _plain(names, incomplete)
    return [CompletionItem(incomplete, type="file")]


def cache_dtypes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the element types that runtimes keep caches in; others are understood too."""
    return _plain(_CACHE_DTYPES, incomplete)


def rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the codes of rules, and their names where a name was begun."""
    from onnx_kvtool.lint.table import RULES

    by_code = _items(((rule.code, rule.summary) for rule in RULES.values()), incomplete)
    return by_code or _items(((rule.name, rule.summary) for rule in RULES.values()), incomplete)


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer codes of rules and their families, in a list with commas."""
    from onnx_kvtool.lint.table import RULES

    families = dict.fromkeys(code[:-2] for code in RULES)
    texts: list[tuple[str, str | None]] = [("ALL", "every rule")]
    texts += [(family, f"every rule {family}..") for family in families]
    texts += [(rule.code, rule.summary) for rule in RULES.values()]
    return _listed(lambda word: _items(texts, word), incomplete)


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer runtimes, and the releases of the one that is named."""
    from onnx_kvtool.targets.releases import releases

    if "@" not in incomplete:
        runtimes = dict.fromkeys(release.runtime for release in releases())
        if list(_plain(runtimes, incomplete)) and incomplete not in runtimes:
            return _items(((name, "the newest release") for name in runtimes), incomplete)
    newest_first = [release for release in reversed(releases()) if not release.unsupported]
    texts = [(f"{r.runtime}@{r.version}", f"opset {r.max_opset or '?'}") for r in newest_first]
    return _items(texts, incomplete)


def operators(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the operators of the default domain."""
    from onnx_kvtool.ops.operator_names import OPERATORS

    return _plain(OPERATORS, incomplete)


def replaceable(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the operators that can be lowered by themselves, in a list with commas."""
    from onnx_kvtool.ops.operator_names import REPLACEABLE

    return _listed(lambda word: _plain(REPLACEABLE, word), incomplete)


def assumptions(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer what may be assumed, then the inputs or dimensions that it is about."""
    kind, colon, rest = incomplete.partition(":")
    values = ("contiguous", "covers-past", "finite", "in-range", "rotated-rows", "unpadded")
    kinds = (*values, "same-dim")
    if not colon:
        return _plain(kinds, incomplete)
    outline = next(_outlines(ctx))
    if kind != "same-dim":
        return _plain((f"{kind}:{name}" for name in outline.inputs), incomplete)
    one, equals, _ = rest.partition("=")
    names = [name for name in outline.dims if name != one]
    head = f"{kind}:{one}=" if equals else f"{kind}:"
    return _plain((f"{head}{name}{'' if equals else '='}" for name in names), incomplete)


def dims(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the dimensions of the inputs of the models that stand before."""
    names = dict.fromkeys(name for outline in _outlines(ctx) for name in outline.dims)
    return [] if "=" in incomplete else _plain((f"{name}=" for name in names), incomplete)


def inputs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the inputs of the model, then files with values."""
    name, equals, _ = incomplete.partition("=")
    if equals:
        start = incomplete.removeprefix(f"{name}=")
        paths = sorted(glob.glob(f"{glob.escape(start)}*"))
        ends = (".npy", ".npz", ".pb")
        return _plain((f"{name}={path}" for path in paths if path.endswith(ends)), incomplete)
    return _plain((f"{name}=" for name in next(_outlines(ctx)).inputs), incomplete)


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the nodes of the model."""
    return _plain(next(_outlines(ctx)).nodes, incomplete)


def values(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the values of the model."""
    return _plain(next(_outlines(ctx)).values, incomplete)


def _outlines(ctx: click.Context) -> Iterator[Outline]:
    """Yield the names in each model that the command line has so far, at least in one."""
    from onnx_kvtool.core.files.outline import Outline, outline

    named = [ctx.params.get(name) for name in ("model", "a", "b")]
    # Where the last option still lacks its value, click leaves the arguments as they are.
    words = (*named, *(ctx.params.get("paths") or ()), *ctx.args)
    paths = [word for word in words if word and os.path.isfile(word)]
    yield from map(outline, paths) if paths else [Outline()]
