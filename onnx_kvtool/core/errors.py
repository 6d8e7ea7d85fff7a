"""The errors that callers of kvtool see.

All derive from `KvtoolError`; nothing else comes out of a public function for bad input. The
command line turns each class into one exit code, which stands here and nowhere else.
"""

from __future__ import annotations

from typing import ClassVar


class KvtoolError(Exception):
    """Base of every error that a caller may want to catch.

    Attributes:
        message: What is wrong (got and expected) and where; one sentence without a full stop.
        help: What to do about it, imperative; None without a remedy.
        exit_code: Exit code of the command line for this class of error.

    Examples:
        >>> try:
        ...     kv.lower("decoder.onnx", target="onnxrutime")
        ... except kv.KvtoolError as error:
        ...     print(error.message, "|", error.help, "|", error.exit_code)
        kvtool knows no runtime `onnxrutime` | did you mean `onnxruntime`? | 2
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __reduce__(self) -> tuple[object, ...]:
        # Classes that derive from this one take other arguments.
        return _revived, (type(self), self.args, self.__dict__)


def _revived(kind: type[KvtoolError], args: tuple[object, ...], state: dict[str, object]) -> object:
    """Return an error that another process has raised."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class CodedError(KvtoolError):
    """An error with a stable identifier of its reason.

    Attributes:
        code: The identifier.
    """

    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        super().__init__(message, help=help)
        self.code = code


class UsageError(KvtoolError):
    """Wrong usage: an invalid argument, or an invalid combination of arguments (exit 2).

    Examples:
        >>> try:
        ...     kv.lower("decoder.onnx", opset=24)
        ... except kv.UsageError as error:
        ...     print(error)
        `opset` is 24, expected 9 to 23
    """

    exit_code = 2


def refuse(*cases: tuple[object, str, str | None]) -> None:
    """Raise `UsageError` for the first case that applies: a condition, a message, and its help."""
    for is_wrong, message, help in cases:
        if is_wrong:
            raise UsageError(message, help=help)


class UnreadableModel(KvtoolError):
    """The input cannot be read (exit 3).

    Raised for a file that is missing, empty, truncated, not ONNX, a Git LFS pointer, or too large
    for one protobuf message, and for external data that is needed and missing, out of range, or
    outside the model's directory.

    Examples:
        >>> try:
        ...     kv.load("missing.onnx")
        ... except kv.UnreadableModel as error:
        ...     print(error)
        `missing.onnx` does not exist
    """

    exit_code = 3


class MalformedModel(UnreadableModel):
    """The file is an ONNX model that contradicts itself (exit 3; `check` reports it).

    Raised for a value that two nodes give, an unknown element type, text that is not UTF-8, and
    numbers of external data that are not numbers.
    """


class Shortage(KvtoolError):
    """The machine lacks memory, or a library that loads (exit 3)."""

    exit_code = 3


class Unverified(KvtoolError):
    """Verification was asked for, and no runtime runs the models (exit 3); nothing is written."""

    exit_code = 3


class UnwritableOutput(KvtoolError):
    """The output cannot be written: no permission, no space, a directory in its place (exit 2).

    Nothing is left behind, and a file that was there is untouched.
    """

    exit_code = 2
