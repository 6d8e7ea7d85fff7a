"""What every layer needs: places, diagnostics, errors, tables, reading and writing models."""
