"""Which rules are switched on, for which files."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import closest
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.settings.patterns import PathPatterns
from onnx_kvtool.lint.table import RULES

__all__ = [
    "ALL",
    "PerFileIgnore",
    "Selection",
    "check_codes",
    "find_rule",
    "matches",
    "split_codes",
]

ALL = "ALL"
"""Prefix of every code."""


def _nearest_code(word: str, codes: Iterable[str]) -> str | None:
    """Return the code that `word` was probably meant to be: that with most characters in place."""
    upper = word[:2].upper() + word[2:].upper().replace("O", "0")
    close = difflib.get_close_matches(upper, list(codes), n=len(RULES))
    agreeing = [sum(map(str.__eq__, upper, code)) - abs(len(upper) - len(code)) for code in close]
    return close[agreeing.index(max(agreeing))] if close else None


def split_codes(text: str) -> list[str]:
    """Return the codes of a list with commas or spaces between them: `KV101, KV2`."""
    return text.replace(",", " ").split()


def matches(prefix: str, code: str) -> bool:
    """Return whether `prefix` is the beginning of a code, or `ALL`."""
    return prefix == ALL or code.startswith(prefix)


def check_codes(prefixes: Iterable[str], where: str) -> tuple[str, ...]:
    """Return prefixes of codes, each of which means at least one rule.

    Args:
        prefixes: Codes, beginnings of codes such as `KV1`, or `ALL`.
        where: What to call the place in which they stand: `--select`.

    Raises:
        UsageError: For the first that no rule has, with the nearest one that a rule has.
    """
    checked = tuple(prefixes)
    for prefix in checked:
        if not prefix or not any(matches(prefix, code) for code in RULES):
            near = _nearest_code(prefix, _prefixes())
            raise UsageError(
                f"{where}: no rule has the code `{prefix}`",
                help=f"did you mean `{near}`?" if near else "`kvtool rule --all` lists the rules",
            )
    return checked


def find_rule(code: str) -> Rule:
    """Return the rule with a code, or with a name.

    Raises:
        UsageError: If there is none; the nearest is named.
    """
    names = {rule.name: rule for rule in RULES.values()}
    rule = RULES.get(code.upper()) or names.get(code)
    if rule is None:
        longer = (known for known in RULES if code and known.startswith(code.upper()))
        near = next(longer, None) or _nearest_code(code, RULES) or closest(code, names)
        raise UsageError(
            f"no rule has the code `{code}`",
            help=f"did you mean `{near}`?" if near else "`kvtool rule --all` lists the rules",
        )
    return rule


@dataclass(frozen=True, slots=True)
class PerFileIgnore:
    """Codes that are switched off for some files.

    Attributes:
        pattern: Which files, as a line of `.gitignore` would say it.
        codes: Prefixes of the codes.
        base: Absolute directory to which the pattern is relative.
    """

    pattern: str
    codes: tuple[str, ...]
    base: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules are switched on.

    Where a code is both selected and ignored, the longer prefix wins, and of equal ones the one
    that ignores: `--select KV101 --ignore KV1` leaves KV101 on, and `--select KV1 --ignore KV101`
    does not.

    Attributes:
        select: Prefixes of the codes that are on; None for all.
        extend_select: Prefixes of further codes that are on.
        ignore: Prefixes of codes that are off.
        per_file: What is off in some files alone, whatever is selected.
    """

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file: tuple[PerFileIgnore, ...] = ()

    def is_on(self, code: str) -> bool:
        """Return whether a rule is on in files about which nothing particular is said."""
        chosen = (ALL,) if self.select is None else self.select
        on = _specificity(code, (*chosen, *self.extend_select))
        return on > _specificity(code, self.ignore)

    def rules(self, path: str = "") -> list[Rule]:
        """Return the rules for one file, in the order of their codes.

        Args:
            path: Path of the file; "" or `-` for a model that lies in none.
        """
        return list(_rules(self, tuple(self._off(path))))

    def _off(self, path: str) -> list[str]:
        if path in ("", "-"):
            return []
        return [
            prefix
            for line in self.per_file
            if PathPatterns([line.pattern], line.base).match(path)
            for prefix in line.codes
        ]


@functools.lru_cache(maxsize=64)
def _rules(selection: Selection, off: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules that are on where some prefixes are off: the same for most of many files."""
    return tuple(
        rule
        for code, rule in RULES.items()
        if selection.is_on(code) and not any(matches(prefix, code) for prefix in off)
    )


def _specificity(code: str, prefixes: Sequence[str]) -> int:
    """Return the length of the longest prefix that means `code`; -1 when none does."""
    lengths = [0 if p == ALL else len(p) for p in prefixes if matches(p, code)]
    return max(lengths, default=-1)


def _prefixes() -> list[str]:
    """Return every code, and every beginning of one that stands for a group."""
    groups = {code[:length] for code in RULES for length in (2, 3)}
    return [*RULES, *sorted(groups), ALL]
