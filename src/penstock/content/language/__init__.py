"""From the text of a WHERE clause to a predicate."""
