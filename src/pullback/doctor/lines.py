"""Which source line made which nodes: intervals of sequence numbers, kept as integers."""

from bisect import bisect_right

from pullback.doctor.sites import Site

MOST = 400_000


class Lines:
    """Intervals of sequence numbers by source line, newest last."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.sites: list[Site] = []

    def add(self, end: int, site: Site) -> None:
        """Say that every node made since the last call, up to `end`, came from this line."""
        self.ends.append(end)
        self.sites.append(site)
        if len(self.ends) > MOST:
            self.trim()

    def trim(self) -> None:
        """Forget the older half, so that memory stays bounded."""
        half = len(self.ends) // 2
        del self.ends[:half], self.sites[:half]

    def of(self, sequence: int) -> Site | None:
        """The line that made the node of this number, if it is remembered."""
        at = bisect_right(self.ends, sequence)
        return self.sites[at] if at < len(self.ends) else None

    def ran_since(self, site: Site, start: int) -> bool:
        """Whether a line made nodes at or after `start`."""
        return site in self.sites[bisect_right(self.ends, start) :]
