"""One model, or one operator, run on inputs that the user names."""
