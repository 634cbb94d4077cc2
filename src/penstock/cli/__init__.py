"""The command line. Data goes to stdout, everything said about it to stderr."""
