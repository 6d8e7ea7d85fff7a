"""Copies of two models with smaller weights, small enough to be run."""
