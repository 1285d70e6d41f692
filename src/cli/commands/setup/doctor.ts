import type { Command } from "commander";
import { Redis } from "ioredis";
import { reasonOf } from "../../../core/describe.ts";
import { InvalidOptionError, StoreUnavailableError } from "../../../core/errors.ts";
import { globalsOf, onOneLine, print, withSluice, type Io } from "../../io.ts";

/** The result of one check. */
interface Finding {
  readonly what: string;
  readonly state: "good" | "warning" | "bad";
  readonly found: string;
  readonly remedy?: string;
}

export function addDoctor(program: Command, io: Io): void {
  program
    .command("doctor")
    .description("checks Redis: version, memory, eviction, persistence, clock and latency")
    .addHelpText("after", "\nExample: sluice doctor")
    .action(async (_options: object, command: Command) => {
      // Create a sluice, because it reads the address of Redis as every other command does.
      await withSluice(command, io, async () => {
        const findings = await examine(globalsOf(command, io).redis!);
        print(command, io, findings, describe);
      });
    });
}

async function examine(url: string): Promise<Finding[]> {
  if (url === "memory") {
    const remedy = "give the URL of a Redis, such as redis://host:6379: there is none in memory";
    throw new InvalidOptionError({ where: "sluice doctor", option: "--redis", value: url, remedy });
  }
  const redis = new Redis(url, {
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
    connectTimeout: 5_000,
  });
  // Keep the last error, because `connect` rejects only with "connection is closed".
  let lastError: unknown;
  redis.on("error", (error) => (lastError = error));
  try {
    await redis.connect();
    const info = parseInfo(await redis.info());
    return [
      versionOf(info),
      evictionOf(info),
      memoryOf(info),
      persistenceOf(info),
      await clockOf(redis),
      await latencyOf(redis),
    ];
  } catch (error) {
    throw new StoreUnavailableError(`Redis does not answer: ${reasonOf(lastError ?? error)}`, {
      cause: lastError ?? error,
    });
  } finally {
    redis.disconnect();
  }
}

type Info = ReadonlyMap<string, string>;

function parseInfo(text: string): Info {
  const pairs = text.split(/\r?\n/).flatMap((line) => {
    const at = line.indexOf(":");
    return at > 0 ? [[line.slice(0, at), line.slice(at + 1)] as const] : [];
  });
  return new Map(pairs);
}

/**
 * The first Redis releases with the fix for a security hole. Through this hole, scripts can run
 * code in the server.
 */
const PATCHED: Readonly<Record<string, string>> = {
  "6.2": "6.2.20",
  "7.2": "7.2.11",
  "7.4": "7.4.6",
  "8.0": "8.0.4",
  "8.2": "8.2.2",
};

function versionOf(info: Info): Finding {
  const what = "version";
  const valkey = info.get("valkey_version");
  const version = valkey ?? info.get("redis_version") ?? "unknown";
  const found = `${valkey === undefined ? "Redis" : "Valkey"} ${version}`;
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (valkey === undefined && (major < 6 || (major === 6 && minor < 2))) {
    return { what, state: "bad", found, remedy: "run Redis 6.2 or later" };
  }
  const patched = valkey === undefined ? PATCHED[`${major}.${minor}`] : undefined;
  if (patched === undefined || isAtLeast(version, patched)) return { what, state: "good", found };
  const remedy = `CVE-2025-49844 lets scripts run code in the server: upgrade to ${patched}`;
  return { what, state: "warning", found, remedy };
}

function isAtLeast(version: string, least: string): boolean {
  const [a, b] = [version, least].map((text) => text.split(".").map(Number)) as [
    number[],
    number[],
  ];
  const at = b.findIndex((part, index) => part !== a[index]);
  return at === -1 || (a[at] ?? 0) > b[at]!;
}

function evictionOf(info: Info): Finding {
  const policy = info.get("maxmemory_policy") ?? "unknown";
  const isBounded = info.get("maxmemory") !== "0";
  if (policy === "noeviction" || !isBounded) {
    return { what: "eviction", state: "good", found: policy };
  }
  return {
    what: "eviction",
    state: "bad",
    found: policy,
    remedy:
      "Redis drops limits and jobs when its memory is full: CONFIG SET maxmemory-policy noeviction",
  };
}

function memoryOf(info: Info): Finding {
  const used = Number(info.get("used_memory") ?? 0);
  const most = Number(info.get("maxmemory") ?? 0);
  const found = `${info.get("used_memory_human") ?? "?"} used, ${most === 0 ? "no limit" : `limit ${info.get("maxmemory_human") ?? "?"}`}`;
  if (most > 0 && used / most > 0.8) {
    return {
      what: "memory",
      state: "warning",
      found,
      remedy: "raise maxmemory, or purge dead letters",
    };
  }
  return { what: "memory", state: "good", found };
}

function persistenceOf(info: Info): Finding {
  const isAof = info.get("aof_enabled") === "1";
  const found = isAof ? "append-only file" : "no append-only file";
  if (isAof && info.get("aof_last_write_status") !== "err") {
    return { what: "persistence", state: "good", found };
  }
  const remedy = isAof
    ? "the append-only file could not be written: look at the disk"
    : "a crash loses the jobs since the last snapshot: set appendonly yes";
  return { what: "persistence", state: isAof ? "bad" : "warning", found, remedy };
}

const SKEW_MS = 1_000;

async function clockOf(redis: Redis): Promise<Finding> {
  const sentMs = Date.now();
  const [seconds, micros] = await redis.time();
  const hereMs = (sentMs + Date.now()) / 2;
  const aheadMs = Math.round(Number(seconds) * 1_000 + Number(micros) / 1_000 - hereMs);
  const found = `${Math.abs(aheadMs)} ms ${aheadMs < 0 ? "behind" : "ahead of"} this machine`;
  if (Math.abs(aheadMs) < SKEW_MS) return { what: "clock", state: "good", found };
  const remedy =
    "slots, deadlines and cron times follow the clock of Redis: run NTP on both machines";
  return { what: "clock", state: "warning", found, remedy };
}

const PINGS = 20;
const SLOW_MS = 5;

async function latencyOf(redis: Redis): Promise<Finding> {
  const times: number[] = [];
  for (let ping = 0; ping < PINGS; ping++) {
    const sentMs = performance.now();
    await redis.ping();
    times.push(performance.now() - sentMs);
  }
  const medianMs = times.toSorted((a, b) => a - b)[PINGS / 2]!;
  const found = `${medianMs.toFixed(2)} ms a round trip`;
  if (medianMs < SLOW_MS) return { what: "latency", state: "good", found };
  const remedy = "a single call waits this long for its slot: run the service close to Redis";
  return { what: "latency", state: "warning", found, remedy };
}

const MARKS = { good: "ok  ", warning: "warn", bad: "BAD " } as const;

function describe(findings: readonly Finding[]): string {
  return findings
    .map(({ what, state, found, remedy }) => {
      const why = remedy === undefined ? "" : `: ${remedy}`;
      return onOneLine(`${MARKS[state]} ${what.padEnd(12)} ${found}${why}`);
    })
    .join("\n");
}
