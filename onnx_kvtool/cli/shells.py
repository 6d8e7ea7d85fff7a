"""The scripts that connect shells to the completion, where those of click fall short.

Bash breaks words at `@`, `=` and `:`, so that click's script sees `onnxruntime@1.` as three of them
and offers nothing; this one passes the line as it is typed. Click's script for fish cuts words at
their first comma; in fish and zsh, what follows `--option=` is offered without it.
"""

from __future__ import annotations

import os
import re

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

__all__ = ["install"]

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
        """Return the words before the one at the cursor, and as much of that as is typed."""
        line = os.environ.get("KVTOOL_COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)[1:]
        if not words or line[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one offer, without what stands before the last place at which bash broke it."""
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
        """Return one offer, behind the option that the word begins with."""
        return super().format_completion(_behind_option(item, self.get_completion_args()[1]))


class _Zsh(ZshComplete):
    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return one offer, behind the option that the word begins with."""
        return super().format_completion(_behind_option(item, self.get_completion_args()[1]))


def _behind_option(item: CompletionItem[str], typed: str) -> CompletionItem[str]:
    """Return an offer for a whole word: click leaves out the option of `--target=openvin`.

    What zsh is offered takes the place of the word, and fish drops what does not begin as it does.
    """
    option = _OPTION.match(typed)
    if option is None or item.type != "plain" or item.value.startswith(option[0]):
        return item
    return CompletionItem(option[0] + item.value, item.type, item.help)


def install() -> None:
    """Let click use these scripts; what has no script here keeps that of click."""
    add_completion_class(_Bash)
    add_completion_class(_Fish)
    add_completion_class(_Zsh)
