"""Train a model: ``python train.py experiment=multi30k_tiny data.root=FOLDER``.

The same as ``python -m transformer train``; every key lives in conf/.
"""

import sys

from transformer.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
