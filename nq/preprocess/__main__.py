"""``python -m nq.preprocess`` is ``nq preprocess``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["preprocess", *sys.argv[1:]]))
