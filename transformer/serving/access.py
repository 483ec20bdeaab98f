"""Who may ask, and how often.

The file of keys has one line a client: its name, the SHA-256 of its key, and its own requests a
minute if it has other than the rest. Keys are compared in constant time.
"""

import hashlib
import hmac
import re
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from transformer.common.errors import InputError
from transformer.data.text.lines import read_lines

# sha256sum writes a dash, or the name of a file, after the digest.
_LINE = re.compile(r"(\S+)\s+([0-9a-fA-F]{64})(?:\s+-)?(?:\s+requests=(\d+))?")

_MOST_CLIENTS = 10_000
"""Addresses whose requests are counted; the one seen longest ago is forgotten first."""


@dataclass(frozen=True)
class Client:
    """The owner of a key; ``requests`` a minute, None is that of the server."""

    name: str
    digest: str
    requests: int | None = None


def read_keys(path: Path) -> list[Client]:
    """Read ``NAME SHA256 [requests=N]`` lines; blank ones and those with ``#`` are skipped.

    Raises InputError if a line is something else, or there is no key.
    """
    clients: list[Client] = []
    for number, line in enumerate(map(str.strip, read_lines(path)), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InputError(
                f"{path}:{number}: not NAME SHA256 [requests=N]; printf %s KEY | sha256sum writes "
                "the second"
            )
        name, digest, requests = match.groups()
        if requests == "0":
            raise InputError(f"{path}:{number}: requests=0 lets {name} ask nothing; leave it out")
        if name in {client.name for client in clients}:
            raise InputError(f"{path}:{number}: there is another key of {name}; give each a name")
        clients.append(Client(name, digest.lower(), None if requests is None else int(requests)))
    if not clients:
        raise InputError(f"{path} holds no key, so that nobody could ask; add one")
    return clients


class Access:
    """Keys, and the requests of the last minute.

    Args:
        clients: Owners of keys; None lets everyone in.
        requests: A minute, of a client without a number of its own; None is any number.
    """

    def __init__(self, clients: list[Client] | None, requests: int | None) -> None:
        self.clients, self.requests = clients, requests
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def client(self, key: str) -> Client | None:
        """The owner of a key."""
        digest = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        # All are compared, so that the time does not tell how near a key was.
        found = [one for one in self.clients or [] if hmac.compare_digest(digest, one.digest)]
        return found[-1] if found else None

    def admits(self, client: Client | None, address: str, cost: int) -> bool:
        """Count a request of so many texts; whether it is within the limit.

        Requests come back evenly over the minute.
        """
        limit = self.requests if client is None or client.requests is None else client.requests
        if limit is None:
            return True
        who = f"address {address}" if client is None else f"key {client.name}"
        now = monotonic()
        left, before = self._left.pop(who, (float(limit), now))
        left = min(float(limit), left + (now - before) * limit / 60)
        # What is more than a minute's worth takes from the minutes to come. A request that was
        # counted as one, before its texts were, has left one less.
        admitted = left >= min(cost, max(1, limit - 1))
        self._left[who] = (left - cost if admitted else left, now)
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return admitted
