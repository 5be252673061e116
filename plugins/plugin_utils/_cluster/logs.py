# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of an API server that are text and may be long: logs of containers, given on block by block."""

from __future__ import annotations

import time
import typing as t
from urllib.parse import urlencode

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .api import ApiError, Cluster, Data
from .transport import NoAnswer

BLOCK = 65536
# Most that one answer may have, whatever is kept of it.
SAID = 64 * 1024 * 1024


class TooLong(NpuError):
    """An answer has more than SAID bytes, or takes longer than its time."""


class TextCluster(Cluster):
    """A cluster that is also asked for text."""

    def text(self, path: str, what: str, query: Data, feed: t.Callable[[bytes], t.Any], seconds: float) -> None:
        """Give an answer block by block to `feed`. ApiError for an error answer, NoAnswer for none, TooLong."""
        import urllib3

        url, deadline, size = self._access.host + path + "?" + urlencode(query), time.monotonic() + seconds, 0
        self.requests += 1
        headers = self._headers("", "*/*")
        try:
            answer = self._access.pool.request(
                "GET", url, headers=headers, timeout=min(self._timeout, seconds), retries=False, preload_content=False
            )
            try:
                if answer.status >= 300:
                    raise ApiError(answer.status, what, {"message": answer.read(2000).decode("utf-8", "replace")})
                for block in answer.stream(BLOCK):
                    feed(block)
                    size += len(block)
                    if size > SAID or time.monotonic() > deadline:
                        raise TooLong("%s: the answer is too long." % what, "Ask for fewer lines.")
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as exc:
            raise NoAnswer("%s: no answer: %s." % (what, mask(str(exc)).rstrip(".")), "Check the node.") from None
