"""Experiments: runs, measures, figures and criteria."""
