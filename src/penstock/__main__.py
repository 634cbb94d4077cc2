"""`python -m penstock` is the command line, for where its script is not on the path."""

from penstock.cli.main import main

main()
