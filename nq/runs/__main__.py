"""``python -m nq.runs`` is ``nq runs``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["runs", *sys.argv[1:]]))
