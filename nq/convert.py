"""``python -m nq.convert`` is ``nq convert``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["convert", *sys.argv[1:]]))
