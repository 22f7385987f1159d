"""Loads a pickle in a Python that has pyspark but not this project.

python -I -S unpickle_program.py PACKAGES PICKLE
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    try:
        thing = pickle.loads(Path(sys.argv[2]).read_bytes())
        thing({})
    except ModuleNotFoundError as error:
        print(error)
