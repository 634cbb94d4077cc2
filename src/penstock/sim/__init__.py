"""Virtual time: the same machines, driven by an event queue instead of a clock."""
