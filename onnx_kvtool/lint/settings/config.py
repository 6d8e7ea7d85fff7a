"""The configuration of `check`, and which rules it selects where."""

from __future__ import annotations

import difflib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from onnx_kvtool.core.choices import CheckFormat, Severity
from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.words import closest, did_you_mean, missing_file_help
from onnx_kvtool.lint.rule import RULES, Rule
from onnx_kvtool.model_io.atomic import patient


def relative_path(path: str, base: str = os.curdir) -> str | None:
    """Return a path relative to a directory, with `/` in it; None on another drive."""
    try:
        return os.path.relpath(path, base).replace(os.sep, "/")
    except ValueError:
        return None


# Patterns of paths, as `.gitignore` writes them.


def is_pattern(line: str) -> bool:
    """Return whether a line is a valid pattern of `.gitignore`."""
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


class PathPatterns:
    """Patterns that stand in one directory.

    Args:
        lines: The patterns, as in `.gitignore`: `*.onnx` anywhere below, `/a` only here, `a/` for a
            directory and its content, `!` for exceptions.
        base: Absolute directory that they are relative to.
    """

    def __init__(self, lines: Iterable[str], base: str) -> None:
        from pathspec import GitIgnoreSpec

        self._spec = GitIgnoreSpec.from_lines(lines)
        self._base = base

    def verdict(self, path: str, *, is_directory: bool = False) -> bool | None:
        """Return whether a path is selected; None if no pattern matches it, or if it is outside.

        The path need not exist. Patterns that end in `/` match directories only.
        """
        relative = relative_path(path, self._base)
        if relative is None or relative.split("/")[0] in (os.curdir, os.pardir):
            return None
        return self._spec.check_file(relative + ("/" if is_directory else "")).include


# Configuration: `[tool.kvtool]` in pyproject.toml, or kvtool.toml.


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


LEVELS = get_args(Severity)
FORMATS = get_args(CheckFormat)

_NAMES = ("kvtool.toml", "pyproject.toml")
# Flags for a single run, which make no sense as a project's settings.
_FLAGS_ONLY = (
    "config",
    "dask",
    "diff",
    "isolated",
    "output",
    "prune-baseline",
    "quiet",
    "shard",
    "verbose",
    "write-baseline",
)


@dataclass(frozen=True, slots=True)
class Config:
    """The content of a configuration file.

    Attributes:
        path: The file; None for no file.
        values: Its keys and their values, in the form of the flags.
    """

    path: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """Absolute directory that its paths and patterns are relative to."""
        return os.getcwd() if self.path is None else os.path.dirname(os.path.abspath(self.path))


class _Unfit(KvtoolError):
    """An invalid value of a key; the message is the expected one."""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split())
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise _Unfit("a list of strings")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Unfit("a string")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit("true or false")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise _Unfit("a positive integer")
    return value


def _one_of(words: Sequence[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            expected = ", ".join(f"`{word}`" for word in words[:-1]) + f" or `{words[-1]}`"
            raise _Unfit(expected, help=did_you_mean(str(value), words))
        return str(value)

    return read


def _dims(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(
        type(number) is int and number > 0 for number in value.values()
    ):
        raise _Unfit("a table of positive integers")
    return dict(value)


def _per_file(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise _Unfit("a table from patterns to lists of codes")
    return {pattern: _texts(codes) for pattern, codes in value.items()}


KEYS: Table[str, Callable[[Any], Any]] = Table(
    "configuration key",
    [
        ("select", _texts),
        ("ignore", _texts),
        ("extend-select", _texts),
        ("per-file-ignores", _per_file),
        ("target", _texts),
        ("format", _one_of(FORMATS)),
        ("fix", _truth),
        ("unsafe-fixes", _truth),
        ("baseline", _text),
        ("fail-on", _one_of(LEVELS)),
        ("exit-zero", _truth),
        ("statistics", _truth),
        ("jobs", _count),
        ("cache-dir", _text),
        ("dim", _dims),
    ],
)
"""The keys, which are names of flags, and the function that reads the value of each."""


def discover(paths: Sequence[str]) -> Config:
    """Return the configuration that is nearest to some paths.

    The search starts in the directory that contains all of them and continues upwards, for a
    kvtool.toml, else a pyproject.toml with a table `[tool.kvtool]`. Without paths, and for standard
    input, it starts in the current directory.

    Raises:
        UsageError: As `load`.
    """
    directory = _common(paths)
    while True:
        for name in _NAMES:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                table = _table(path)
                if table is not None:
                    return Config(path, _read(path, table))
        parent = os.path.dirname(directory)
        if parent == directory:
            return Config()
        directory = parent


def load(path: str) -> Config:
    """Read a configuration file.

    Args:
        path: A pyproject.toml, which must have a table `[tool.kvtool]`, or any other TOML file with
            the keys at its top.

    Raises:
        UsageError: If the file cannot be read or is no TOML, or has an unknown key or an invalid
            value.
    """
    table = _table(path)
    if table is None:
        raise UsageError(f"`{path}` has no table `[tool.kvtool]`")
    return Config(path, _read(path, table))


def _common(paths: Sequence[str]) -> str:
    directories = []
    for path in paths:
        if path == "-":
            continue
        place = os.path.abspath(path)
        directories.append(place if os.path.isdir(place) else os.path.dirname(place))
    if not directories:
        return os.getcwd()
    try:
        return os.path.commonpath(directories)
    except ValueError:  # on different drives
        return os.getcwd()


def file_content(
    path: str,
    suffix: str,
    what: str = "",
    help: str | None = None,
    kind: type[KvtoolError] = UsageError,
) -> bytes:
    """Return the bytes of a file that was named, or raise an error of a kind.

    Args:
        path: The file.
        suffix: The suffix that such files have.
        what: What it is, in front of its name in messages.
        help: What to do if it does not exist, and no file has a name like it.
        kind: The error.
    """
    try:
        with open(path, "rb", opener=patient) as file:
            return file.read()
    except FileNotFoundError as error:
        help = missing_file_help(path, suffix) or help
        raise kind(f"{what}`{path}` does not exist", help=help) from error
    except OSError as error:
        raise kind(f"{what}`{path}` cannot be read: {error.strerror or error}") from error


def _table(path: str) -> Mapping[str, Any] | None:
    """Return the settings in a file; None for a pyproject.toml without any."""
    content = file_content(path, ".toml")
    try:
        data = tomllib.loads(content.decode())
    except RecursionError as error:
        raise UsageError(f"`{path}` is nested too deeply to be read") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"`{path}` is no TOML: {error}") from error
    if os.path.basename(path) != "pyproject.toml":
        return data
    tool = data.get("tool")
    table = tool.get("kvtool") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"`{path}`: `tool.kvtool` is {table!r}, expected a table")
    return table


def _read(path: str, table: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        reader = KEYS.get(key)
        if reader is None:
            raise _unknown(path, key)
        try:
            values[key] = reader(value)
        except _Unfit as error:
            # Text in backticks, others as in TOML and JSON.
            shown = f"`{value}`" if isinstance(value, str) else json.dumps(value, default=str)
            message = f"`{path}`: `{key}` is {shown}, expected {error.message}"
            raise UsageError(message, help=error.help) from error
    return values


def _unknown(path: str, key: str) -> UsageError:
    if key == "tool":
        return UsageError(
            f"`{path}`: unknown key `tool`",
            help="leave the header `[tool.kvtool]` out: it is for pyproject.toml, here the "
            "keys stand at the top",
        )
    if key in _FLAGS_ONLY:
        return UsageError(
            f"`{path}`: `{key}` is no configuration key", help=f"give `--{key}` on the command line"
        )
    return UsageError(
        f"`{path}`: unknown key `{key}`",
        help=did_you_mean(key.replace("_", "-"), KEYS, f"the keys are {', '.join(KEYS)}"),
    )


# The rules that are on, by file.


ALL = "ALL"
"""Prefix of every code."""


def _nearest_code(word: str, codes: Iterable[str]) -> str | None:
    """Return the code most similar to `word`: the one that agrees in most positions."""
    upper = word[:2].upper() + word[2:].upper().replace("O", "0")
    close = difflib.get_close_matches(upper, list(codes), n=len(RULES))
    agreeing = [sum(map(str.__eq__, upper, code)) - abs(len(upper) - len(code)) for code in close]
    return close[agreeing.index(max(agreeing))] if close else None


def split_codes(text: str) -> list[str]:
    """Return the codes of a list separated by commas or spaces: `KV101, KV2`."""
    return text.replace(",", " ").split()


def matches(prefix: str, code: str) -> bool:
    """Return whether `prefix` begins a code, or is `ALL`."""
    return prefix == ALL or code.startswith(prefix)


def check_codes(prefixes: Iterable[str], where: str) -> tuple[str, ...]:
    """Return prefixes of codes; each matches at least one rule.

    Raises:
        UsageError: For the first that matches no rule, with the nearest one that does.
    """
    checked = tuple(prefixes)
    for prefix in checked:
        if not prefix or not any(matches(prefix, code) for code in RULES):
            groups = {code[:length] for code in RULES for length in (2, 3)}
            near = _nearest_code(prefix, [*RULES, *sorted(groups), ALL])
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


class PerFileIgnore(NamedTuple):
    """Rules that are off for some files.

    Attributes:
        pattern: Which files, as a line of `.gitignore` would say it.
        codes: Prefixes of the codes.
        base: Absolute directory that the pattern is relative to.
    """

    pattern: str
    codes: tuple[str, ...]
    base: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules that are on.

    If a code is both selected and ignored, the longer prefix wins; of equal ones, the ignored one.
    `--select KV101 --ignore KV1` leaves KV101 on, and `--select KV1 --ignore KV101` does not.

    Attributes:
        select: Prefixes of the codes that are on; None for all.
        extend_select: Prefixes of further codes that are on.
        ignore: Prefixes of codes that are off.
        per_file: Rules that are off in some files, whatever is selected.
    """

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file: tuple[PerFileIgnore, ...] = ()

    def is_on(self, code: str) -> bool:
        """Return whether a rule is on in files without their own settings."""
        chosen = (ALL,) if self.select is None else self.select
        on = _specificity(code, (*chosen, *self.extend_select))
        return on > _specificity(code, self.ignore)

    def rules(self, path: str = "") -> list[Rule]:
        """Return the rules for one file, in the order of their codes; "" and `-` are no paths."""
        off = [
            prefix
            for line in (self.per_file if path not in ("", "-") else ())
            if PathPatterns([line.pattern], line.base).verdict(path)
            for prefix in line.codes
        ]
        return list(_rules(self, tuple(off)))


@functools.lru_cache(maxsize=64)
def _rules(selection: Selection, off: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules that are on without some prefixes; cached, as most files share them."""
    return tuple(
        rule
        for code, rule in RULES.items()
        if selection.is_on(code) and not any(matches(prefix, code) for prefix in off)
    )


def _specificity(code: str, prefixes: Sequence[str]) -> int:
    """Return the length of the longest prefix that matches `code`; -1 if none does."""
    lengths = [0 if p == ALL else len(p) for p in prefixes if matches(p, code)]
    return max(lengths, default=-1)
