"""Operators that change the element type of their input and nothing else."""
