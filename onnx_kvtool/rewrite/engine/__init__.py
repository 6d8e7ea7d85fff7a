"""The engine of every rewrite: guards, edits, and what a rule builds with.

Lowering, upgrading and raising are tables that it is given; it knows none of them.
"""
