"""``python -m nq.clean`` is ``nq clean``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["clean", *sys.argv[1:]]))
