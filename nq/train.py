"""``python -m nq.train`` is ``nq train``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["train", *sys.argv[1:]]))
