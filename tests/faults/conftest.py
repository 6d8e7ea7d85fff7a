"""What runs the commands of these tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.faults.kvtool_process import Runner

collect_ignore_glob = ["test_*.py"] if sys.platform == "win32" else []
"""Their tables name signals that Windows does not have."""


@pytest.fixture(scope="package")
def runner() -> Iterator[Runner]:
    """A process that forks a child for each command."""
    if sys.platform != "linux":
        pytest.skip("needs pidfd, /proc and limits of processes")
    from tests.faults.kvtool_process import running

    with running() as found:
        yield found
