#!/bin/sh
# Installs PostgreSQL on Debian, as root, without creating a cluster or starting a service.
set -eu
export DEBIAN_FRONTEND=noninteractive

exec 9>/tmp/sluice-install-postgres.lock
flock 9
if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then exit 0; fi

# The one switch that package scripts obey under systemd as well as without it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi

# Stale lists may still do, and without them the install says what is wrong.
apt-get update -o DPkg::Lock::Timeout=120 9>&- || true
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 postgresql-common 9>&-
# Without this, the package of the server creates a cluster.
sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 postgresql 9>&-
