"""Building new nodes, and the forms that rules of all kinds build of them."""
