"""Shell completion: the offers for an unfinished word, and the scripts of shells."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias, get_args

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from onnx_kvtool.core.choices import AssumedValue, DiffPart

if TYPE_CHECKING:
    from onnx_kvtool.model_io.wire import Outline


# Somebody waits after a key, so nothing here reads weights or imports onnx. Each function imports
# what it needs beyond click.


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
    """Offer the models that a path may lead to; all files if directories match."""
    found = sorted(glob.glob(f"{glob.escape(incomplete)}*"))
    names = [path for path in found if path.endswith(".onnx")]
    is_simple = not any(os.path.isdir(path) or path.split() != [path] for path in found)
    if names and is_simple and not incomplete.startswith("~"):
        return _plain(names, incomplete)
    return [CompletionItem(incomplete, type="file")]


def cache_dtypes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the usual element types of caches; kvtool accepts others, too."""
    return _plain(_CACHE_DTYPES, incomplete)


def rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the codes of rules, or their names if no code matches."""
    from onnx_kvtool.lint.rule import RULES

    by_code = _items(((rule.code, rule.summary) for rule in RULES.values()), incomplete)
    return by_code or _items(((rule.name, rule.summary) for rule in RULES.values()), incomplete)


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer codes of rules and their families, in a list with commas."""
    from onnx_kvtool.lint.rule import RULES

    families = dict.fromkeys(code[:-2] for code in RULES)
    texts: list[tuple[str, str | None]] = [("ALL", "every rule")]
    texts += [(family, f"every rule {family}..") for family in families]
    texts += [(rule.code, rule.summary) for rule in RULES.values()]
    return _listed(lambda word: _items(texts, word), incomplete)


def parts(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the parts of a model that `kvtool diff` compares, in a list with commas."""
    return _listed(lambda word: _plain(get_args(DiffPart), word), incomplete)


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
    """Offer the operators that `--only` accepts, in a list with commas."""
    from onnx_kvtool.ops.operator_names import REPLACEABLE

    return _listed(lambda word: _plain(REPLACEABLE, word), incomplete)


def assumptions(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Complete an assumption, then the inputs or dimensions that it is about."""
    kind, colon, rest = incomplete.partition(":")
    if not colon:
        return _plain((*get_args(AssumedValue), "same-dim"), incomplete)
    outline = next(_outlines(ctx))
    if kind != "same-dim":
        return _plain((f"{kind}:{name}" for name in outline.inputs), incomplete)
    one, equals, _ = rest.partition("=")
    names = [name for name in outline.dims if name != one]
    head = f"{kind}:{one}=" if equals else f"{kind}:"
    return _plain((f"{head}{name}{'' if equals else '='}" for name in names), incomplete)


def dims(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Offer the dimensions of the inputs of the models on the command line."""
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
    """Yield the outline of each model on the command line; an empty one if there is none."""
    from onnx_kvtool.model_io.wire import Outline, outline

    named = [ctx.params.get(name) for name in ("model", "a", "b")]
    # If the last option lacks its value, click does not parse the arguments.
    words = (*named, *(ctx.params.get("paths") or ()), *ctx.args)
    paths = [word for word in words if word and os.path.isfile(word)]
    yield from map(outline, paths) if paths else [Outline()]


# Scripts for shells, because those of click fail in some cases. Bash breaks words at `@`, `=` and
# `:`, so that click's script sees `onnxruntime@1.` as three words; this one passes the whole line.
# Click's script for fish cuts words at their first comma. In fish and zsh, click offers the value
# behind `--option=` without the option.


_OPTION = re.compile(r"^--[\w-]+=")

_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
        KVTOOL_COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete $1)

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=("$value")
            # More follows: a value for the name, or the next of a pair.
            if [[ $value == *= ]]; then
                compopt -o nospace
            fi
        fi
    done

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


class _Bash(BashComplete):
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor's word, and the typed part of this word."""
        line = os.environ.get("KVTOOL_COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)[1:]
        if not words or line[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one offer, without the part before the last place where bash breaks it."""
        value = item.value
        if "KVTOOL_COMP_LINE" in os.environ and item.type == "plain":
            _, typed = self.get_completion_args()
            typed = _OPTION.sub("", typed)
            breaks = set(os.environ.get("COMP_WORDBREAKS", "@=:")) & set("@=:")
            cut = max((typed.rfind(char) for char in breaks), default=-1) + 1
            value = value.removeprefix(typed[:cut])
        return f"{item.type},{value}"


class _Fish(FishComplete):
    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split -m 1 ","'
    )

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one offer, with the option at the start of the word."""
        return super().format_completion(_behind_option(item, self.get_completion_args()[1]))


class _Zsh(ZshComplete):
    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one offer, with the option at the start of the word."""
        return super().format_completion(_behind_option(item, self.get_completion_args()[1]))


def _behind_option(item: CompletionItem[str], typed: str) -> CompletionItem[str]:
    """Return an offer for the whole word: click omits the option of `--target=openvin`.

    zsh replaces the whole word, and fish drops offers that do not begin like it.
    """
    option = _OPTION.match(typed)
    if option is None or item.type != "plain" or item.value.startswith(option[0]):
        return item
    return CompletionItem(option[0] + item.value, item.type, item.help)


def install() -> None:
    """Let click use these scripts; other shells keep those of click."""
    add_completion_class(_Bash)
    add_completion_class(_Fish)
    add_completion_class(_Zsh)
