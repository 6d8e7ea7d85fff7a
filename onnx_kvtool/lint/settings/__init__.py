"""Which files and rules are meant, and which findings are known or suppressed."""
