"""What rules ask of a model, found once for all of them."""
