"""``python -m nq.clean`` is ``nq clean``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["clean", *sys.argv[1:]]))
