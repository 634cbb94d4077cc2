"""The experiments, a file or folder for each family of figures."""
