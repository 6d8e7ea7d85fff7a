"""The command line: parse, call, render, exit.

Modules of this package import click and the standard library when they are loaded; what a command
needs beyond that, its callback imports.
"""

from __future__ import annotations

from onnx_kvtool.cli.app import app, main

__all__ = ["app", "main"]
