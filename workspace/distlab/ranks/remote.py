"""What the notebook asks of a live rank, as functions that run there."""


def describe() -> dict[str, object]:
    """What the rank is."""
    from IPython import get_ipython

    me = get_ipython().user_ns["me"]
    return {"rank": me.rank, "host": me.host, "device": str(me.device), "reason": me.reason}


def evaluate(expression: str) -> tuple[object, str | None]:
    """An expression's value in plain types, or what is wrong with it."""
    from IPython import get_ipython

    from distlab.report import plain

    try:
        return plain(expression, eval(expression, get_ipython().user_ns)), None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
