"""The checks of rules, one module a family; `pages` holds the page of each rule."""
