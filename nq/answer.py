"""``python -m nq.answer``: see ``nq.commands.answer``."""

from nq.commands.answer import main

if __name__ == "__main__":
    raise SystemExit(main())
