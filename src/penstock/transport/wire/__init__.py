"""What transports send each other: the header of a message, and control messages."""
