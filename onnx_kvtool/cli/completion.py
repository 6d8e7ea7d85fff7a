"""Shell completion: the offers for an unfinished word, and the scripts of shells."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from onnx_kvtool.core.choices import AssumedValue, DiffPart

if TYPE_CHECKING:
    from onnx_kvtool.model_io.wire import Outline


# Somebody waits after a key, so nothing here reads weights or imports onnx. Each function imports
# what it needs beyond click.


_WORDS: Mapping[str, Sequence[str]] = {
    "cache_dtypes": (  # the usual ones; kvtool accepts others, too
        "float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2",
        "int8", "uint8", "int4", "uint4",
    ),
    "parts": get_args(DiffPart),
}  # fmt: skip
"""Offers that are the same for every command line."""

_Text = str | tuple[str, str]
"""An offer, perhaps with its help."""

_LISTS = ("codes", "parts", "replaceable")
"""What offers words of a list with commas."""


def complete(name: str, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Return the offers called `name` that begin like the unfinished word."""
    done, comma, last = incomplete.rpartition(",") if name in _LISTS else ("", "", incomplete)
    offered: Iterable[_Text | CompletionItem[str]] = (
        _WORDS[name] if name in _WORDS else globals()[name](ctx, last)
    )
    found = []
    for each in offered:
        if isinstance(each, CompletionItem):
            found.append(each)
            continue
        text, help = (each, None) if isinstance(each, str) else each
        if text.lower().startswith(last.lower()):
            found.append(CompletionItem(f"{done}{comma}{text}", help=help))
    return found


def models(ctx: click.Context, word: str) -> Iterable[str | CompletionItem[str]]:
    """Offer the models that a path may lead to; all files if directories match."""
    found = sorted(glob.glob(f"{glob.escape(word)}*"))
    names = [path for path in found if path.endswith(".onnx")]
    is_simple = not any(os.path.isdir(path) or path.split() != [path] for path in found)
    if names and is_simple and not word.startswith("~"):
        return names
    return [CompletionItem(word, type="file")]


def rules(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the codes of rules, or their names if no code matches."""
    from onnx_kvtool.lint.rule import RULES

    is_code = any(code.lower().startswith(word.lower()) for code in RULES)
    return ((rule.code if is_code else rule.name, rule.summary) for rule in RULES.values())


def codes(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer codes of rules and their families, in a list with commas."""
    from onnx_kvtool.lint.rule import RULES

    yield "ALL", "every rule"
    for family in dict.fromkeys(code[:-2] for code in RULES):
        yield family, f"every rule {family}.."
    for rule in RULES.values():
        yield rule.code, rule.summary


def targets(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer runtimes, and the releases of the one that is named."""
    from onnx_kvtool.targets.releases import releases

    runtimes = dict.fromkeys(release.runtime for release in releases())
    if word not in runtimes and any(name.startswith(word.lower()) for name in runtimes):
        return ((name, "the newest release") for name in runtimes)
    newest_first = (release for release in reversed(releases()) if not release.unsupported)
    return ((f"{r.runtime}@{r.version}", f"opset {r.max_opset or '?'}") for r in newest_first)


def operators(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the operators of the default domain."""
    from onnx_kvtool.ops.operator_names import OPERATORS

    return OPERATORS


def replaceable(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the operators that `--only` accepts, in a list with commas."""
    from onnx_kvtool.ops.operator_names import REPLACEABLE

    return REPLACEABLE


def assumptions(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Complete an assumption, then the inputs or dimensions that it is about."""
    kind, colon, rest = word.partition(":")
    if not colon:
        return (*get_args(AssumedValue), "same-dim")
    outline = next(_outlines(ctx))
    if kind != "same-dim":
        return (f"{kind}:{name}" for name in outline.inputs)
    one, equals, _ = rest.partition("=")
    head, tail = (f"{kind}:{one}=", "") if equals else (f"{kind}:", "=")
    return (f"{head}{name}{tail}" for name in outline.dims if name != one)


def dims(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the dimensions of the inputs of the models on the command line."""
    names = dict.fromkeys(name for outline in _outlines(ctx) for name in outline.dims)
    return (f"{name}=" for name in names if "=" not in word)


def inputs(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the inputs of the model, then files with values."""
    name, equals, start = word.partition("=")
    if not equals:
        return (f"{name}=" for name in next(_outlines(ctx)).inputs)
    paths = sorted(glob.glob(f"{glob.escape(start)}*"))
    return (f"{name}={path}" for path in paths if path.endswith((".npy", ".npz", ".pb")))


def nodes(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the nodes of the model."""
    return next(_outlines(ctx)).nodes


def values(ctx: click.Context, word: str) -> Iterable[_Text]:
    """Offer the values of the model."""
    return next(_outlines(ctx)).values


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


class _WholeWord(ShellComplete):
    """Offers the whole word: click omits the option of `--target=openvin`.

    zsh replaces the whole word, and fish drops offers that do not begin like it.
    """

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one offer, with the option at the start of the word."""
        option = _OPTION.match(self.get_completion_args()[1])
        if option and item.type == "plain" and not item.value.startswith(option[0]):
            item = CompletionItem(option[0] + item.value, item.type, item.help)
        return super().format_completion(item)


class _Fish(_WholeWord, FishComplete):
    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split -m 1 ","'
    )


class _Zsh(_WholeWord, ZshComplete):
    pass


def install() -> None:
    """Let click use these scripts; other shells keep those of click."""
    for shell in (_Bash, _Fish, _Zsh):
        add_completion_class(shell)
