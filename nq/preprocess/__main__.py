"""``python -m nq.preprocess`` is ``nq preprocess``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["preprocess", *sys.argv[1:]]))
