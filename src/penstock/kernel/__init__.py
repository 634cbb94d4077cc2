"""How parts live: the interface of a machine, timers, randomness, the trace, and small parts that services share."""
