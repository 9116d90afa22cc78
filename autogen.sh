#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
set -e
cd "$(dirname "$0")"
mkdir -p config
exec autoreconf --install --force
