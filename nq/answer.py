"""``python -m nq.answer`` is ``nq answer``."""

import sys

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main(["answer", *sys.argv[1:]]))
