"""Pictures of the HTML reports: `python -m tests.pages.screenshots`, with Chromium on the path."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["HEIGHTS", "IMAGES", "main"]

_ROOT = Path(__file__).resolve().parents[2]
IMAGES = _ROOT / "docs" / "images"
_WIDTH = 1000
HEIGHTS = {"inspect": 1080, "diff": 800, "bench": 665}
"""How much of the report of each command is shown, in pixels."""

_COMMANDS = """
    raise growing.onnx --capacity 4096 -o fixed.onnx
    inspect decoder.onnx --dim batch=16 --format html -o inspect.html
    diff growing.onnx fixed.onnx --exit-zero --format html -o diff.html
    bench growing.onnx fixed.onnx --context 4000 --threads 1 --profile --format html
"""


def main() -> None:
    """Write the reports of two decoders, and a picture of each."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        fixtures = _ROOT / "fixtures"
        shutil.copy(fixtures / "models/native/llama_static.onnx", place / "decoder.onnx")
        shutil.copy(fixtures / "growing/llama__optimum.onnx", place / "growing.onnx")
        for line in _COMMANDS.strip().splitlines():
            command = [sys.executable, "-m", "onnx_kvtool", *line.split()]
            result = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, check=True)
        (place / "bench.html").write_bytes(result.stdout)
        for report, height in HEIGHTS.items():
            picture = IMAGES / f"report-{report}.png"
            subprocess.run(
                [
                    chromium,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                    f"--window-size={_WIDTH},{height}",
                    f"--screenshot={picture}",
                    (place / f"{report}.html").as_uri(),
                ],
                stderr=subprocess.DEVNULL,
                check=True,
            )
            sys.stdout.write(f"written: {picture.relative_to(_ROOT)}\n")


if __name__ == "__main__":
    main()
