"""``python -m nq.serve`` is ``nq serve``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["serve", *sys.argv[1:]]))
