"""Fix symbolic dimensions, and fold the constants that follow."""
