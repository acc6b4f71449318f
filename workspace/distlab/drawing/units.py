"""Sizes and times as people say them."""


def words_of_size(size: float) -> str:
    """Bytes as people say them, with 1 KB = 1024 B.

    >>> [words_of_size(size) for size in (512, 1024, 65536, 3 << 20)]
    ['512 B', '1 KB', '64 KB', '3 MB']
    """
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size:.3g} B"


def words_of_time(seconds: float) -> str:
    """Seconds as people say them.

    >>> [words_of_time(seconds) for seconds in (2e-6, 0.00345, 1.5)]
    ['2 µs', '3.45 ms', '1.5 s']
    """
    for unit, least in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= least:
            return f"{seconds / least:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
