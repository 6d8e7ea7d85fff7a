"""What releases of runtimes load, and where they are wrong."""
