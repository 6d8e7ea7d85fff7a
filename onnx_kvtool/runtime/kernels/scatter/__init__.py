"""Operators that write elements to places given by indices."""
