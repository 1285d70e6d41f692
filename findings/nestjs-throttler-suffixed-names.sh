#!/usr/bin/env bash
# @nestjs/throttler 6.7.1 with named throttlers answers a 429 with Retry-After-<name> alone: there is no Retry-After,
# and none of the X-RateLimit headers that came with the answers before.
#
# A client that reads Retry-After finds no time at all.
#
# Output seen on 28 November 2026 with Node 20.20.2, @nestjs/core 12.5.1, @nestjs/throttler 6.7.1:
#   429 {"retry-after-short":"40"}
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @nestjs/common@12.5.1 @nestjs/core@12.5.1 \
  @nestjs/platform-express@12.5.1 @nestjs/throttler@6.7.1 reflect-metadata@0.2.2 rxjs@7.8.2
cat >run.mjs <<'EOF'
import "reflect-metadata";
import { APP_GUARD, NestFactory } from "@nestjs/core";
import { Controller, Get, Module } from "@nestjs/common";
import { ThrottlerGuard, ThrottlerModule } from "@nestjs/throttler";

class Greeter {
  greet() {
    return "hello";
  }
}
const method = Object.getOwnPropertyDescriptor(Greeter.prototype, "greet");
Reflect.decorate([Get()], Greeter.prototype, "greet", method);
Controller()(Greeter);

class App {}
const throttlers = [
  { name: "short", ttl: 1_000, limit: 1, blockDuration: 40_000 },
  { name: "long", ttl: 600_000, limit: 100 },
];
Module({
  imports: [ThrottlerModule.forRoot(throttlers)],
  controllers: [Greeter],
  providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }],
})(App);

const app = await NestFactory.create(App, { logger: false });
await app.listen(0, "127.0.0.1");
const url = `http://127.0.0.1:${app.getHttpServer().address().port}/`;
await (await fetch(url)).text();
const refused = await fetch(url);
const headers = Object.fromEntries([...refused.headers].filter(([name]) => /retry|rate/.test(name)));
console.log(refused.status, JSON.stringify(headers));
await app.close();
const isAsDescribed = refused.status === 429 && JSON.stringify(headers) === '{"retry-after-short":"40"}';
process.exit(isAsDescribed ? 0 : 1);
EOF
node run.mjs
