"""The command line. Data goes to stdout, everything about it to stderr."""
