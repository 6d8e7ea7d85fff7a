"""Work in processes: results in order, and one that dies does not take the others with it."""

from __future__ import annotations

import os
import time

import pytest

from onnx_kvtool.lint.jobs import run_jobs


def double(item: str) -> str:
    time.sleep(0.05 if item == "a" else 0)
    return item * 2


def fragile(item: str) -> str:
    if item == "kills":
        os._exit(7)
    return item * 2


def died(item: str) -> str:
    return f"{item} died"


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    assert list(run_jobs(double, ["a", "b", "c"], jobs, died)) == ["aa", "bb", "cc"]


def test_no_items_are_no_results() -> None:
    assert list(run_jobs(double, [], 2, died)) == []


def test_an_item_that_kills_its_process_does_not_stop_the_rest() -> None:
    items = ["a", "kills", "b", "c"]
    assert list(run_jobs(fragile, items, 2, died)) == ["aa", "kills died", "bb", "cc"]
