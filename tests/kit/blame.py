"""The one message of a failed run: the right rank, once, soon, and no word of those who only lost a peer."""

SOON = 5.0
INNOCENT = ("closed by peer", "reset by peer", "Broken pipe", "GLHF", "DistNetworkError", "SIGTERM", "elastic")


def assert_blames(failure, text, within=SOON):
    """The message starts with `text`, and no word of those who only lost a peer is shown."""
    assert failure.message.startswith(text)
    assert failure.result.error.startswith(text.strip())
    assert failure.message.count("Traceback (most recent call last)") <= 1
    for word in INNOCENT:
        assert word not in failure.message and word not in failure.said
    assert failure.after < within
    assert failure.message.endswith(f"logs: {failure.result.folder / 'logs'}")
    assert not failure.result.ok
    assert all(end.how != "completed" for end in failure.result.ranks)
