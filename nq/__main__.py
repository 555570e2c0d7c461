"""``python -m nq`` is the console script."""

from nq.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
