"""``python -m nq.ask`` is ``nq ask``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["ask", *sys.argv[1:]]))
