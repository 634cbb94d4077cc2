"""Each publisher's messages in the order in which it sent them."""
