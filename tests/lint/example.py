"""The examples of rules, as messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["example_message"]

_APPENDED = re.compile(r"^\s*# appended: ([0-9a-f]+)$", re.MULTILINE)


def example_message(text: str) -> onnx.ModelProto:
    """Return the model message that an example stands for; nothing in it is checked.

    Args:
        text: A model in ONNX text, which begins with `<` or with the name of its graph. What that
            has no words for, such as a node without an operator, stands in protobuf's own text
            format, which begins with a field (`ir_version: 10`); there a comment
            `# appended: <hex>` gives bytes that follow the message, as a newer writer leaves them.

    Raises:
        ValueError: If `text` is neither.
    """
    import onnx
    import onnx.parser
    from google.protobuf import text_format  # type: ignore[import-untyped]

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
