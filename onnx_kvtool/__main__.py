"""`python -m onnx_kvtool` is `kvtool`."""

from __future__ import annotations

from onnx_kvtool.cli import main

if __name__ == "__main__":
    main()
