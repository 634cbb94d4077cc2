"""Which of many predicates, or encodings, match a message: the two indexes."""
