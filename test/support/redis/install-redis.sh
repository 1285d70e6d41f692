#!/bin/sh
# Installs redis-server on Debian, as root, without starting it as a service.
set -eu
export DEBIAN_FRONTEND=noninteractive

# apt's own timeout does not cover the lock of the package lists, so callers queue here.
exec 9>/tmp/sluice-install-redis.lock
flock 9
if command -v redis-server >/dev/null || command -v valkey-server >/dev/null; then exit 0; fi

# The one switch that package scripts obey under systemd as well as without it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi

# Stale lists may still do, and without them the install says what is wrong.
apt-get update -o DPkg::Lock::Timeout=120 9>&- || true
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 redis-server 9>&-
