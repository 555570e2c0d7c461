"""``python -m nq.convert`` is ``nq convert``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["convert", *sys.argv[1:]]))
