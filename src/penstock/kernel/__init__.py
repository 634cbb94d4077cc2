"""How parts live: the interface of a machine, its timers and randomness, the trace, and small parts that services share."""
