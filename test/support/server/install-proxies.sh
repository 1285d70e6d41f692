#!/bin/sh
# Installs nginx and Caddy on Debian, as root.
set -eu
export DEBIAN_FRONTEND=noninteractive

exec 9>/tmp/sluice-install-proxies.lock
flock 9
if command -v nginx >/dev/null && command -v caddy >/dev/null; then exit 0; fi

# Stale lists may still do, and without them the install says what is wrong.
apt-get update -o DPkg::Lock::Timeout=300 9>&- || true
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 nginx-light caddy 9>&-
