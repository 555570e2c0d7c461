"""``python -m nq.answer`` is ``nq answer``."""

import sys

from nq.commands.main import console

if __name__ == "__main__":
    raise SystemExit(console(["answer", *sys.argv[1:]]))
