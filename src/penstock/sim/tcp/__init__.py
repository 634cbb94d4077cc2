"""TCP in virtual time, beside the brokers on the same pipes."""
