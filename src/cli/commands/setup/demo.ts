import { fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { setTimeout as pause } from "node:timers/promises";
import { Option, type Command } from "commander";
import { countOf } from "../../options.ts";
import { globalsOf, print, untilInterrupted, withSluice, type Io } from "../../io.ts";

interface DemoOptions {
  readonly processes: string;
  readonly rate: string;
  readonly seconds: string;
  /** The URL that this process calls. It is set only in processes that the demo starts. */
  readonly caller?: string;
}

const BUCKET = "demo";
/** The number of pending calls in each process. */
const CALLS_AT_ONCE = 20;
const BY = "x-process";

export function addDemo(program: Command, io: Io): void {
  program
    .command("demo")
    .description("shows several processes that share one rate, on your Redis")
    .option("--processes <count>", "the number of processes", "3")
    .option("--rate <rate>", "the rate that they share", "50/s")
    .option("--seconds <count>", "the duration", "10")
    .addOption(new Option("--caller <url>").hideHelp())
    .addHelpText(
      "after",
      `
Each process calls a server as often as its limit allows. The server counts the calls. All keys in Redis begin with the
prefix and "-demo", and expire.

Example: sluice demo --processes 5 --rate 200/s --seconds 20`,
    )
    .action(async (options: DemoOptions, command: Command) => {
      if (options.caller !== undefined) return callOn(options, command, io);
      await runDemo(options, command, io);
    });
}

/** Calls the server in each slot, until the parent process ends. */
async function callOn({ rate, caller }: DemoOptions, command: Command, io: Io): Promise<void> {
  process.once("disconnect", () => process.exit());
  // Ignore Ctrl-C, which reaches all processes of a terminal. The demo ends this process later.
  process.on("SIGINT", () => undefined);
  await withSluice(command, io, async (sluice) => {
    const bucket = sluice.bucket(BUCKET, { rate: rate as "1/s" });
    const headers = { [BY]: String(process.pid) };
    const call = bucket.throttled(async () => {
      await (await fetch(caller!, { headers })).text();
    });
    const one = async (): Promise<void> => {
      for (;;) await call();
    };
    await Promise.all(Array.from({ length: CALLS_AT_ONCE }, one));
  });
}

interface Arrival {
  readonly atMs: number;
  /** The index of the process that made the call. */
  readonly from: number;
}

interface Result {
  readonly rate: string;
  readonly capPerSecond: number | undefined;
  readonly arrived: number;
  /** The number of calls that arrived, by process. */
  readonly byProcess: readonly number[];
  /** The most calls that arrived in any period of one second. */
  readonly worstSecond: number;
  readonly seconds: readonly { readonly arrived: number; readonly byProcess: readonly number[] }[];
}

async function runDemo(options: DemoOptions, command: Command, io: Io): Promise<void> {
  const { rate } = options;
  const count = countOf("--processes", options.processes);
  const seconds = countOf("--seconds", options.seconds);
  const given = globalsOf(command, io);
  const prefix = `${given.prefix}-demo`;
  const interrupted = untilInterrupted();
  await withSluice(
    command,
    io,
    async (sluice) => {
      // Check the rate and Redis before starting processes.
      const { capPerSecond } = await sluice.bucket(BUCKET, { rate: rate as "1/s" }).status();
      await using arrivals = await countArrivals();
      await using callers = startCallers(arrivals.url, {
        count,
        rate,
        prefix,
        redis: given.redis!,
      });
      const columns = ["second", "arrived", ...callers.names];
      const row = (cells: readonly unknown[]): string =>
        cells.map((cell, at) => String(cell).padStart(columns[at]!.length)).join("  ");
      const write = given.json === true ? () => {} : (text: string) => io.out(`${text}\n`);
      write(`${count} processes share ${rate}. To watch: sluice top --prefix ${prefix}\n`);
      write(row(columns.map((name) => name.toUpperCase())));
      const ended = Promise.race([interrupted.then(() => "ended" as const), callers.lost]);
      const shown: Result["seconds"][number][] = [];
      while (shown.length < seconds) {
        const second = shown.length + 1;
        if ((await Promise.race([ended, arrivals.untilSecond(second)])) === "ended") break;
        const { arrived, byProcess } = inSecond(arrivals.all, second, count);
        shown.push({ arrived, byProcess });
        write(row([second, arrived, ...byProcess]));
      }
      const result = {
        rate,
        capPerSecond,
        ...totalOf(arrivals.all, count),
        seconds: shown,
      };
      if (result.arrived === 0) throw new Error("No call arrived.");
      print(command, io, result, describe);
    },
    { prefix },
  );
}

/** Starts the server that records each call. */
async function countArrivals() {
  const all: Arrival[] = [];
  const processes = new Map<string, number>();
  const server = createServer((request, response) => {
    const pid = String(request.headers[BY]);
    if (!processes.has(pid)) processes.set(pid, processes.size);
    all.push({ atMs: performance.now(), from: processes.get(pid)! });
    response.end();
  });
  const begun = once(server, "request");
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    all,
    /** Resolves at the end of the given second. The first second starts with the first call. */
    async untilSecond(second: number): Promise<void> {
      await begun;
      await pause(Math.max(0, all[0]!.atMs + second * 1_000 - performance.now()));
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => void server.close(resolve));
    },
  };
}

interface CallersGiven {
  readonly count: number;
  readonly rate: string;
  readonly prefix: string;
  readonly redis: string;
}

function startCallers(url: string, { count, rate, prefix, redis }: CallersGiven) {
  const args = ["--prefix", prefix, "demo", "--rate", rate, "--caller", url];
  // Pass the URL in the environment, because it may contain a password, which the list of processes
  // would show.
  const env = { ...process.env, REDIS_URL: redis };
  const children = Array.from({ length: count }, () =>
    fork(process.argv[1]!, args, { env, stdio: ["ignore", "ignore", "inherit", "ipc"] }),
  );
  let isEnding = false;
  const exits = children.map((child) => once(child, "exit"));
  const losses = exits.map(async (exit, at) => {
    await exit;
    if (!isEnding) throw new Error(`Process ${at + 1} of the demo ended unexpectedly.`);
    return "ended" as const;
  });
  const lost = Promise.race(losses);
  lost.catch(() => undefined);
  return {
    names: children.map((_child, at) => `process ${at + 1}`),
    /** Rejects when a process ends unexpectedly. */
    lost,
    async [Symbol.asyncDispose]() {
      isEnding = true;
      for (const child of children) if (child.connected) child.disconnect();
      await Promise.all(exits);
    },
  };
}

function inSecond(
  all: readonly Arrival[],
  second: number,
  processes: number,
): Result["seconds"][number] {
  const startMs = all[0]!.atMs + (second - 1) * 1_000;
  const mine = all.filter(({ atMs }) => atMs >= startMs && atMs < startMs + 1_000);
  return { arrived: mine.length, byProcess: sharesOf(mine, processes) };
}

function sharesOf(arrivals: readonly Arrival[], processes: number): readonly number[] {
  return Array.from(
    { length: processes },
    (_none, at) => arrivals.filter(({ from }) => from === at).length,
  );
}

function totalOf(
  all: readonly Arrival[],
  processes: number,
): Pick<Result, "arrived" | "byProcess" | "worstSecond"> {
  let worstSecond = 0;
  for (let first = 0, after = 0; after < all.length; after += 1) {
    while (all[after]!.atMs - all[first]!.atMs >= 1_000) first += 1;
    worstSecond = Math.max(worstSecond, after - first + 1);
  }
  return { arrived: all.length, byProcess: sharesOf(all, processes), worstSecond };
}

function describe({ rate, arrived, byProcess, worstSecond }: Result): string {
  return `\n${arrived} calls arrived: ${byProcess.join(", ")} from the processes. At most ${worstSecond} arrived in any second; the rate is ${rate}.`;
}
