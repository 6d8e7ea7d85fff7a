"""What each command does, callable from Python: a request in, a typed report out, no printing."""
