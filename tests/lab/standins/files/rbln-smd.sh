#!/bin/sh
# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Stand-in for the management daemon: it runs, holds the first device open, and does nothing.
# The subshell tries first: a shell ends when the redirection of its exec fails.
# shellcheck disable=SC2188
if (: </dev/rbln0) 2>/dev/null; then exec 3</dev/rbln0; fi
exec sleep infinity
