"""What griffe, which reads source, cannot know of a function whose arguments are a request."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import griffe

import onnx_kvtool as kv

__all__ = ["Signatures"]


class Signatures(griffe.Extension):
    """Gives such functions the parameters and the docstring that they have when they are called."""

    def on_function_instance(
        self, *, node: ast.AST | griffe.ObjectNode, func: griffe.Function, **_: Any
    ) -> None:
        """Replace what stands in the source of a function with the decorator `asked`."""
        if not any(str(one.value).startswith("asked(") for one in func.decorators):
            return
        function = getattr(kv, func.name)
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    one.name,
                    annotation=one.annotation,
                    kind=griffe.ParameterKind(one.kind.description),
                    default=None if one.default is one.empty else repr(one.default),
                )
                for one in inspect.signature(function).parameters.values()
            )
        )
        func.docstring = griffe.Docstring(
            inspect.getdoc(function) or "", lineno=func.lineno, parent=func
        )
