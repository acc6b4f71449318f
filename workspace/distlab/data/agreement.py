"""All ranks of a group read the same set, or stop with the same message."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from distlab.data.sets import fall_back
from distlab.data.store import HostDataError, Prepared, data_root, speak

if TYPE_CHECKING:
    from distlab.process import Rank


def agree(
    me: "Rank", get: Callable[[], Prepared], *, root: str | os.PathLike | None = None, leads: bool = True
) -> Prepared:
    """Prepare on this rank, tell the others, and settle on what all of them have.

    Raises:
        Exception: this rank's own failure.
        HostDataError: another rank's failure, with its host and rank; or hosts hold different data.
    """
    found: Prepared | Exception
    try:
        found = get()
    except Exception as error:
        found = error
    cards = _exchange(me, found)
    if isinstance(found, Exception):
        raise found
    for card in cards:
        if card["failure"]:
            raise HostDataError(f"rank {card['rank']} on {card['host']}: {card['failure']}")
    names = {card["name"] for card in cards}
    if names == {"fashion-mnist", "digits"}:
        lacking = next(card for card in cards if card["name"] == "digits")
        if found.facts["name"] != "digits":
            found = fall_back(data_root(root), f"{lacking['host']} lacks it", leads=leads, retry=False, say=speak)
        return replace(found, note=f"{lacking['host']}: {lacking['note']}")
    for card in cards:
        if card["digest"] != cards[0]["digest"]:
            raise HostDataError(
                f"{card['host']} has other data than {cards[0]['host']}: {card['what']} against {cards[0]['what']}. "
                "Copy the same files to both, or let both use one shared folder"
            )
    return found


def _exchange(me: "Rank", found: Prepared | Exception) -> list[dict]:
    card = {"rank": me.rank, "host": me.host, "failure": str(found) if isinstance(found, Exception) else ""}
    if isinstance(found, Prepared):
        facts = found.facts
        card |= {"name": facts["name"], "note": found.note, "digest": facts["digest"]}
        card["what"] = f"{facts['train']:,} + {facts['val']:,} images of {facts['name']}"
    return me.gather(card)
