"""What is sent: messages, the predicates that select them, and the structures that match one with the other."""
