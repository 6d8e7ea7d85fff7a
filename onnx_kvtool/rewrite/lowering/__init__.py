"""Lowering: one file per rule, and the table that lists them."""
