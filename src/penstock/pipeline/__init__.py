"""What happened becomes a data set, and Spark turns it into the measures that the papers report.

`read` -> `truth` -> `metrics` -> `models` -> `checks`; every step is `DataFrame -> DataFrame`. PySpark, pandas and
pyarrow are imported only inside functions: `import penstock` stays light, and a broker never needs them.
"""
