"""States that leave the server: compressed and signed, so that only what this server gave out comes back."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import zlib

from vcdeploy.errors import BadValue

LARGEST = 1 << 24  # bytes of a state, unpacked


class Signer:
    """Signs states with a key; servers with the same key accept each other's."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, model: str, state: bytes) -> str:
        packed = zlib.compress(state, 1)
        return base64.urlsafe_b64encode(self._mac(model, packed) + packed).decode()

    def open(self, model: str, sealed: str) -> bytes:
        """Raises BadValue unless `seal` made it for this model, with the same key."""
        try:
            content = base64.urlsafe_b64decode(sealed.encode())
        except (binascii.Error, ValueError) as error:
            raise BadValue("state is not one that this server returned: pass it on unchanged") from error
        mac, packed = content[:32], content[32:]
        if not hmac.compare_digest(mac, self._mac(model, packed)):
            raise BadValue(
                f"state was not returned by this server for the model {model!r}, or it was restarted since: "
                "send the text so far as the prompt instead"
            )
        unpack = zlib.decompressobj()
        return unpack.decompress(packed, LARGEST)

    def _mac(self, model: str, packed: bytes) -> bytes:
        return hmac.new(self._key, model.encode() + b"\0" + packed, hashlib.sha256).digest()
