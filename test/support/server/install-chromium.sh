#!/bin/sh
# Installs Chromium on Debian, as root.
set -eu
export DEBIAN_FRONTEND=noninteractive

exec 9>/tmp/sluice-install-chromium.lock
flock 9
if command -v chromium >/dev/null; then exit 0; fi

# Stale lists may still do, and without them the install says what is wrong.
apt-get update -o DPkg::Lock::Timeout=300 9>&- || true
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 chromium 9>&-
