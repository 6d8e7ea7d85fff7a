"""The examples of rules, as messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["example_message"]

_APPENDED = re.compile(r"^\s*# appended: ([0-9a-f]+)$", re.MULTILINE)
_LIKEWISE = re.compile(r"^(.*)\n# ([a-z]+)(\d+) to \2(\d+): likewise\b.*$", re.MULTILINE)


def _repeated(found: re.Match[str]) -> str:
    """Return a line and its repetitions, with one more in each number behind the name."""
    line, name, first, last = found.groups()
    number = re.compile(rf"\b{name}(\d+)\b")
    return "\n".join(
        number.sub(lambda at, by=by: f"{name}{int(at[1]) + by}", line)
        for by in range(int(last) - int(first) + 2)
    )


def example_message(text: str) -> onnx.ModelProto:
    """Return the model message that an example stands for; nothing in it is checked.

    Args:
        text: A model in ONNX text, which begins with `<` or with the name of its graph. What that
            has no words for, such as a node without an operator, stands in protobuf's own text
            format, which begins with a field (`ir_version: 10`); there a comment
            `# appended: <hex>` gives bytes that follow the message, as a newer writer leaves them.
            A comment `# f2 to f9: likewise` repeats the line before it, about `f1`, for these.

    Raises:
        ValueError: If `text` is neither.
    """
    import onnx
    import onnx.parser
    from google.protobuf import text_format  # type: ignore[import-untyped]

    text = _LIKEWISE.sub(_repeated, text)
    if not re.match(r"\s*(#.*\s*)*(ir_version|opset_import|graph)\b", text):
        try:
            return onnx.parser.parse_model(text)
        except onnx.parser.ParseError as error:
            raise ValueError(f"the example is no ONNX text: {error}") from error
    message = onnx.ModelProto()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ValueError(f"the example is no protobuf text: {error}") from error
    data = message.SerializeToString()
    for appended in _APPENDED.findall(text):
        data += bytes.fromhex(appended)
    result = onnx.ModelProto()
    result.ParseFromString(data)
    return result
