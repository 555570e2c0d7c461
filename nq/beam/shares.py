"""How the input is divided among workers."""

from __future__ import annotations

SHARES_PER_READER = 4

Share = tuple[int, int, int]


def shares(n_files: int, readers: int) -> list[Share]:
    """Returns (file, i, n) for each share of the input: every n-th record of a file from the i-th.

    There are no more shares of a file than its readers need, because each passes over the records
    of the others.

    >>> shares(1, 2), shares(8, 2)[:3]
    ([(0, 0, 2), (0, 1, 2)], [(0, 0, 1), (1, 0, 1), (2, 0, 1)])
    >>> len(shares(50, 64)) / 50, shares(0, 2)
    (6.0, [])
    """
    n = min(readers, -(-SHARES_PER_READER * readers // max(1, n_files)))
    return [(file, i, n) for file in range(n_files) for i in range(n)]
