"""``python -m nq.tune`` is ``nq tune``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["tune", *sys.argv[1:]]))
