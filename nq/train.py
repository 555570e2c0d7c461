"""``python -m nq.train`` is ``nq train``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["train", *sys.argv[1:]]))
