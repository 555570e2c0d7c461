"""``python -m nq.ask`` is ``nq ask``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["ask", *sys.argv[1:]]))
