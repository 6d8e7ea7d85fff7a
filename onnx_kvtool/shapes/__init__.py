"""Shapes and types of every value."""
