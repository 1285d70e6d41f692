#!/usr/bin/env bash
# postgres 3.4.9 (postgres.js) asks the server for the types of parameters, and turns the parameter of a json or jsonb
# cast into JSON. If it already is JSON text, the row gets a JSON string instead of the object. The driver pg sends the
# text as it is. So SQL that works with pg stores other values with postgres.js. A cast through text avoids that.
#
# Output seen on 30 November 2026 with Node 20.20.2, postgres 3.4.9, pg 8.23.1, PostgreSQL 15.18:
#   $1::jsonb                 postgres.js string  pg object
#   CAST($1 AS text)::jsonb   postgres.js object  pg object
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed. Needs $DATABASE_URL, or root on a Debian
# that has PostgreSQL installed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if [[ -z ${DATABASE_URL:-} ]]; then
  bin="$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb | tail -1)")"
  chown postgres "$folder"
  as_postgres() { su postgres -c "$1" >/dev/null; }
  as_postgres "$bin/initdb -D $folder/data -A trust"
  as_postgres "$bin/pg_ctl -w -D $folder/data -o '-h \"\" -k $folder' -l $folder/log start"
  trap 'as_postgres "$bin/pg_ctl -D $folder/data -m fast stop"; rm -rf "$folder"' EXIT
  export PGHOST="$folder" PGUSER=postgres PGDATABASE=postgres
fi
mkdir app
cd app
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund postgres@3.4.9 pg@8.23.1
cat >run.mjs <<'SCRIPT'
import pg from "pg";
import postgres from "postgres";

const url = process.env.DATABASE_URL;
const sql = url === undefined ? postgres() : postgres(url);
const client = new pg.Client(url);
await client.connect();
const json = JSON.stringify({ a: 1 });
const seen = [];
for (const value of ["$1::jsonb", "CAST($1 AS text)::jsonb"]) {
  const query = `SELECT jsonb_typeof(${value}) AS type`;
  const [[one], { rows: [other] }] = await Promise.all([
    sql.unsafe(query, [json]),
    client.query(query, [json]),
  ]);
  console.log(`${value.padEnd(25)} postgres.js ${one.type}  pg ${other.type}`);
  seen.push(one.type, other.type);
}
await Promise.all([sql.end(), client.end()]);
process.exit(seen.join(" ") === "string object object object" ? 0 : 1);
SCRIPT
node run.mjs
