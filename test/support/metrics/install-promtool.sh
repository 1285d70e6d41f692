#!/bin/sh
# Installs Prometheus' promtool on Debian, as root, without starting Prometheus as a service.
set -eu
export DEBIAN_FRONTEND=noninteractive

exec 9>/tmp/sluice-install-promtool.lock
flock 9
if command -v promtool >/dev/null; then exit 0; fi

# The one switch that package scripts obey under systemd as well as without it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi

# Stale lists may still do, and without them the install says what is wrong.
apt-get update -o DPkg::Lock::Timeout=300 9>&- || true
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 prometheus 9>&-
