"""Optional compilation of the hot modules with mypyc; without PENSTOCK_COMPILE=1 the package is plain Python."""

import os

from setuptools import setup

HOT_MODULES: list[str] = []

if os.environ.get("PENSTOCK_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(HOT_MODULES))
else:
    setup()
