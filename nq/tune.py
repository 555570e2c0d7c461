"""``python -m nq.tune`` is ``nq tune``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["tune", *sys.argv[1:]]))
