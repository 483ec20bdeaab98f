"""Keys of clients, compared in constant time, and the limit of requests a minute."""

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from transformer.common.errors import InputError
from transformer.data.text.lines import read_lines

# sha256sum writes a dash, or the name of a file, after the digest.
_LINE = re.compile(r"(\S+)\s+([0-9a-fA-F]{64})(?:\s+-)?(?:\s+requests=([1-9]\d*))?")


@dataclass(frozen=True)
class Client:
    """The owner of a key; without ``requests`` a minute, the limit of the server holds."""

    name: str
    digest: str
    requests: int | None = None


def read_keys(path: Path) -> list[Client]:
    """Read ``NAME SHA256 [requests=N]`` lines; raises InputError for another line."""
    clients = []
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
        clients.append(Client(name, digest.lower(), int(requests) if requests else None))
    return clients


class Access:
    """Owners of keys, and their requests of the last minute.

    Args:
        clients: The owners of keys; None: nobody needs a key.
        requests: Texts a minute of an address, or of a key without its own limit; None: no limit.
        max_counted: Counted addresses and keys; the one seen longest ago is forgotten first.
        clock: Time in seconds.
    """

    def __init__(
        self,
        clients: list[Client] | None,
        requests: int | None,
        *,
        max_counted: int = 10_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.clients = clients
        self.requests = requests
        self._max_counted = max_counted
        self._clock = clock
        self._remaining: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def client(self, key: str) -> Client | None:
        """The owner of a key."""
        digest = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        # Compare all keys: the time must not depend on the key.
        matches = [
            client for client in self.clients or [] if hmac.compare_digest(digest, client.digest)
        ]
        return matches[-1] if matches else None

    def admits(self, client: Client | None, address: str, cost: int) -> bool:
        """Count ``cost`` texts; returns whether they are within the limit, which refills evenly."""
        limit = self.requests if client is None or client.requests is None else client.requests
        if limit is None:
            return True
        owner = f"address {address}" if client is None else f"key {client.name}"
        now = self._clock()
        remaining, before = self._remaining.pop(owner, (float(limit), now))
        remaining = min(float(limit), remaining + (now - before) * limit / 60)
        # A request above the limit of a minute uses up the next minutes. Its first text may have
        # been counted before.
        admitted = remaining >= min(cost, max(1, limit - 1))
        if admitted:
            remaining -= cost
        self._remaining[owner] = (remaining, now)
        if len(self._remaining) > self._max_counted:
            self._remaining.popitem(last=False)
        return admitted
