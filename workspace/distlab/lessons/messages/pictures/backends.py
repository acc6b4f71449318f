"""What each backend can do here, as a table of what was tried."""

from typing import Any

from distlab.drawing.figure import require

YES = "✓"
LONGEST = 42


def table(records: list[dict]) -> list[dict]:
    """A row per operation, a column per backend and device: a tick, or why not, in a few words.

    Args:
        records: of the events `backend` (backend, built_in, devices), `group` (backend, device, refused) and
            `operation` (backend, device, name, refused), of one rank; all ranks report the same.
    """
    records = require(records, "backend")
    # Of each the cells by operation, or words on why there are none.
    columns: dict[str, Any] = {}
    for record in records:
        if record["event"] == "backend" and not record["built_in"]:
            columns[record["backend"]] = "not in this torch"
        elif record["event"] == "group":
            columns[f"{record['backend']} on {record['device']}"] = _short(record["refused"])
        elif record["event"] == "operation":
            cells = columns.setdefault(f"{record['backend']} on {record['device']}", {})
            cells[record["name"]] = _short(record["refused"]) if record["refused"] else YES
    names = [name for cells in columns.values() if isinstance(cells, dict) for name in cells]
    return [
        {
            "operation": name,
            **{column: cells if isinstance(cells, str) else cells.get(name, "") for column, cells in columns.items()},
        }
        for name in dict.fromkeys(names)
    ]


def refused(records: list[dict], backend: str, device: str) -> list[str]:
    """The operations that a backend refuses with tensors of a device."""
    mine = [record for record in records if record["event"] == "operation" and record["refused"]]
    return [record["name"] for record in mine if (record["backend"], record["device"]) == (backend, device)]


def _short(text: str) -> str:
    text = text.strip().partition("\n")[0]
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
