"""What a launcher is to the rest of the package: a name, variables, and perhaps a command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# To a launcher simulated hosts are one machine: node1 and node2 are names that only we know.
HERE, LOOPBACK = "localhost", "lo"


@dataclass(frozen=True)
class Start:
    """One program, to be started once for each slot of the hosts.

    Attributes:
        program: its words.
        table: host -> its ranks, in rank order; the launcher runs on the first.
        peers: names of the other hosts; None when all hosts are simulated on this machine.
        seconds: how long to wait for the ranks to start.
        bin: folder of the launcher's own program, with a separator at its end; empty for whatever PATH finds.
        exported: names of variables that ranks must get from the launcher's environment.
    """

    program: Sequence[str]
    table: Sequence[tuple[str, int]]
    peers: Sequence[str] | None
    seconds: float
    bin: str = ""
    exported: Sequence[str] = ()

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(slots for _, slots in self.table)

    def hosts(self, own_name: Callable[[str], str] = str) -> str:
        """The hosts as launchers take them, `node1:2,node2:2`; `own_name` says what the first one is called."""
        if self.peers is None:
            return f"{HERE}:{self.ranks}"
        (first, slots), *others = self.table
        return ",".join(f"{name}:{slots}" for name, slots in [(own_name(first), slots), *others])


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks.

    Attributes:
        name: as `run(launcher=...)` takes it.
        variables: what it tells a rank: rank, world_size, local_rank, local_world_size, host_index, host or
            host_count -> the variable's name. It must have the first two.
        command: the words that start the ranks of all hosts from the first; None where each host starts its own.
        lacking: why it cannot start anything here, and what to do; empty when it can.
        interface: the variable that names the network interface through which ranks meet.
        settings: how variables begin that set it, or its library, and so must reach ranks.
        errors: names of the exceptions that its library raises when another rank is gone.
    """

    name: str
    variables: Mapping[str, str]
    command: Callable[[Start], list[str]] | None = None
    lacking: Callable[[], str] = field(default=str)
    interface: str | None = None
    settings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
