import { readFile } from "node:fs/promises";
import { Client } from "pg";
import { describe, expect, inject, it } from "vitest";
import { PAIRS } from "../../../examples/stand-ins/pairs.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";

// They end after the scripts.
const servers = ownRedisServers();
const scripts = scriptProcesses();
const postgres = postgresForFile();
/** As on a machine on which nothing is set up. */
const BARE = Object.fromEntries(Object.values(PAIRS).map(({ needs }) => [needs, undefined]));

function runExample(
  args: readonly string[],
  env: Record<string, string | undefined> = {},
  isSource = false,
): ScriptProcess {
  return scripts.start("examples/run.ts", {
    args,
    env: { ...BARE, REDIS_URL: inject("redisUrl"), ...env },
    isSource,
  });
}

const PRINTED: Readonly<Record<string, readonly string[]>> = {
  webhook: ["invoice.created was answered 200", "invoice.paid was answered 200"],
  llm: [
    "You asked: Why is the sky blue?",
    "used 12 tokens; its estimate was { tokens: 100 }",
    "You asked: Who wrote Middlemarch?",
  ],
  payment: ["1200 cents: succeeded as pi_1", "700 cents: not charged, card_declined"],
};

/** Runs an example to its end on a separate Redis, checks that it leaves no key there, and returns what it printed. */
async function runToEnd(file: string, env: Record<string, string> = {}): Promise<string> {
  const { url, operator } = await servers.start();
  const example = scripts.start(file, { env: { REDIS_URL: url, ...env } });
  const isStored = async (): Promise<boolean> => (await operator.dbsize()) > 0;
  await waitUntil(isStored, "the example has stored something");
  const during = await operator.keys("*");

  const exitCode = await example.ended;

  expect({ exitCode, stderr: example.stderr }).toEqual({ exitCode: 0, stderr: "" });
  expect(during.filter((key) => !key.startsWith("sluice-example-"))).toEqual([]);
  expect(await operator.keys("*")).toEqual([]);
  return example.stdout;
}

describe("the data of an example", () => {
  it.each([
    "examples/durable-queue.ts",
    "examples/calls/throttled-client.ts",
    "examples/calls/stop-at-a-budget.ts",
    "examples/calls/use-several-accounts.ts",
  ])("has a separate prefix, and is removed at the end: %s", async (file) => {
    expect(await runToEnd(file)).toMatch(/./);
  });

  it.each([
    ["examples/durable-queue.ts", "mail to reader-1@", "SIGINT"],
    ["examples/run.ts", "Started.", "SIGINT"],
    ["examples/run.ts", "Started.", "SIGTERM"],
    ["examples/servers/express-middleware.ts", "Ask http", "SIGINT"],
    ["examples/servers/fastify-plugin.ts", "Ask http", "SIGTERM"],
    ["examples/servers/bull-board.ts", "See http", "SIGINT"],
    ["examples/servers/openai-proxy.ts", "OPENAI_BASE_URL=http", "SIGTERM"],
  ] as const)("is removed when it is stopped: %s, after %j, by %s", async (file, line, signal) => {
    const { url, operator } = await servers.start();
    const example = scripts.start(file, {
      args: ["webhook"],
      env: { ...BARE, REDIS_URL: url, PORT: "0" },
    });
    await waitUntil(() => example.stdout.includes(line), "the example runs");

    example.signal(signal);
    await example.ended;

    expect(example.stderr).toBe("");
    expect(await operator.keys("*")).toEqual([]);
  });
});

it("the example of Nest runs a job for a request, and leaves nothing behind", async () => {
  const { url, operator } = await servers.start();
  const example = scripts.start("examples/servers/nestjs.ts", {
    env: { REDIS_URL: url, PORT: "0", TSX_TSCONFIG_PATH: "tsconfig.check.json" },
  });
  await waitUntil(() => example.stdout.includes("Ask http"), "the server listens");
  const [, base] = /Ask (\S+):/.exec(example.stdout)!;

  const response = await fetch(`${base}/charges/1200`, { method: "POST" });
  const body: unknown = await response.json();
  example.signal("SIGTERM");
  await example.ended;

  expect(body).toEqual({ result: "charged 1200" });
  expect(example.stderr).toBe("");
  expect(await operator.keys("*")).toEqual([]);
});

it("the example of encrypted payloads reads both keys, and shows nothing without one", async () => {
  const printed = await runToEnd("examples/jobs/encrypt-payloads.ts");

  expect(printed.trim().split("\n")).toEqual([
    "without the key: aes-256-gcm:k1",
    "paid to DE89 3704 0044 0532 0130 00",
    "paid to GB29 NWBK 6016 1331 9268 19",
  ]);
});

describe("the example of an outbox", () => {
  it("sends mails for committed orders only, and leaves nothing behind", async () => {
    const printed = await runToEnd("examples/jobs/outbox.ts", { DATABASE_URL: postgres.url });

    expect(printed).toContain("order 3 is out of stock");
    expect(printed).toContain("waiting in the outbox: 7");
    const mails = [...printed.matchAll(/mail for order (\d+)/g)].map(([, order]) => order);
    expect(mails).toEqual(["1", "2", "4", "5", "7", "8", "10"]);
    const client = new Client({ connectionString: postgres.url });
    await client.connect();
    const { rows } = await client.query("SELECT FROM pg_namespace WHERE nspname LIKE 'sluice%'");
    await client.end();
    expect(rows).toEqual([]);
  });
});

describe("the example of two tenants", () => {
  it("serves the small tenant long before the flood of the large one is over", async () => {
    const printed = await runToEnd("examples/calls/share-a-rate.ts");

    const before = [...printed.matchAll(/small (\d) is done, after (\d+) of 60/g)].map(
      ([, number, calls]) => [Number(number), Number(calls)] as const,
    );
    expect(before.map(([number]) => number)).toEqual([1, 2, 3, 4, 5]);
    expect(before.at(-1)![1]).toBeLessThan(45);
    expect(printed).toContain("large still waits: weight 2, floor none");
    expect(printed).toContain("large is done too, with 60 calls");
  });
});

describe("the example of a limit that adapts", () => {
  it("grows to the capacity of the service, and falls when that halves", async () => {
    const printed = await runToEnd("examples/calls/adapt-to-latency.ts");

    const [grown, fallen] = printed.split("The service runs 6 calls at once from now on.");
    const limitsOf = (text: string): number[] =>
      [...text.matchAll(/^(\d+) at once/gm)].map(([, limit]) => Number(limit));
    expect(limitsOf(grown!)[0]).toBe(4);
    expect(limitsOf(grown!).at(-1)).toBeGreaterThanOrEqual(10);
    expect(limitsOf(fallen!).at(-1)).toBeLessThanOrEqual(8);
    expect(printed).toContain("The limit has followed.");
  });
});

describe("the example of simulated limits", () => {
  it("shows that the API refuses fewer calls of a lower rate, and how long each tenant waits", async () => {
    const env = { REDIS_URL: "redis://127.0.0.1:1" };
    const example = scripts.start("examples/calls/try-limits.ts", { env });

    expect(await example.ended).toBe(0);

    const { stdout } = example;
    const refusals = [...stdout.matchAll(/refuses (\d+) of/g)].map(([, many]) => Number(many));
    expect(refusals).toHaveLength(3);
    expect(refusals[1]).toBeLessThan(refusals[0]!);
    expect(stdout.match(/loud [\d.]+ s, quiet [\d.]+ s, small [\d.]+ s/g)).toHaveLength(3);
  });
});

describe("the example of a test without Redis", () => {
  it("ends by itself, once the retry has run", async () => {
    const env = { REDIS_URL: "redis://127.0.0.1:1" };
    const example = scripts.start("examples/jobs/test-without-redis.ts", { env });

    expect(await example.ended).toBe(0);
    expect(example.stdout).toContain("The retry has sent the reminder.");
  });
});

describe("the example of a worker that ends", () => {
  it("runs the due jobs, and says what happened", async () => {
    const printed = await runToEnd("examples/jobs/run-until-empty.ts");

    expect(printed.match(/sent the statement of/g)).toHaveLength(3);
    expect(printed).toContain("empty: 3 done, 1 failed for good, 1 due later");
  });
});

describe("the example of a flow", () => {
  it("publishes once all parts are loaded, and then announces it", async () => {
    const printed = await runToEnd("examples/jobs/flow.ts");

    const lines = printed.trim().split("\n");
    const at = (line: string): number => lines.indexOf(line);
    for (const part of ["a", "bb", "ccc", "dddd", "eeeee"]) {
      expect(at(`loaded ${part}`)).toBeLessThan(at("publish, after 5 jobs"));
    }
    expect(at("announce, after 1 jobs")).toBeGreaterThan(at("publish, after 5 jobs"));
    expect(lines.at(-1)).toBe("published 15 characters");
  });
});

describe("the example of middleware", () => {
  it("runs each job with the tenant of its producer", async () => {
    const printed = await runToEnd("examples/jobs/run-in-middleware.ts");

    const results = [...printed.matchAll(/attempt 1: (.*) \(\d+ ms\)/g)].map(([, text]) => text);
    expect(results.toSorted()).toEqual(["sales for acme", "sales for umbrella", "stock for acme"]);
  });
});

describe("the example of debounced jobs", () => {
  it("runs each burst once with its newest data, and stops the run that is out of date", async () => {
    const printed = await runToEnd("examples/jobs/debounce.ts");

    expect(printed.trim().split("\n")).toEqual([
      'indexing "Slu"',
      'stopped "Slu"',
      'indexing "Sluice is fast"',
      'indexed "Sluice is fast"',
      "6 edits: 1 done, 1 cancelled",
    ]);
  });
});

describe("the example of kept jobs", () => {
  it("runs the two newest jobs of each key", async () => {
    const printed = await runToEnd("examples/jobs/keep-newest.ts");

    const [first, ...runs] = printed.trim().split("\n");
    expect(first).toBe("20 jobs were enqueued, 4 wait");
    expect(runs.toSorted()).toEqual([
      "van-1: minute 10",
      "van-1: minute 9",
      "van-2: minute 10",
      "van-2: minute 9",
    ]);
  });
});

describe("npm run example", () => {
  it.each(Object.keys(PAIRS))(
    "runs the %s worker and its producer without any key",
    async (name) => {
      const example = runExample([name]);

      const exitCode = await example.ended;

      expect({ exitCode, stderr: example.stderr }).toEqual({ exitCode: 0, stderr: "" });
      expect(example.stdout).toContain("is not set, so a stand-in on http://127.0.0.1:");
      for (const line of PRINTED[name]!)
        expect(example.stdout).toMatch(new RegExp(`^producer +${escaped(line)}$`, "m"));
      expect(example.stdout).toContain('"msg":"Closed."');
    },
  );

  it("starts a separate Redis if there is none", async () => {
    const example = runExample(["webhook"], { REDIS_URL: undefined }, true);

    expect(await example.ended).toBe(0);
  });

  it.each([
    [["unknown"], {}, "Say which: npm run example -- webhook | llm | payment"],
    [[], {}, "Say which"],
    [["payment"], { STRIPE_SECRET_KEY: "sk_live_secret" }, "give a test key"],
  ])("refuses %j with %j", async (args, env, problem) => {
    const example = runExample(args, env);

    expect(await example.ended).toBe(2);

    expect(example.stderr).toContain(problem);
    expect(example.stderr).not.toContain("secret");
  });

  it("is documented with each of its pairs in the examples' README, beside the files", async () => {
    const page = await readFile("examples/README.md", "utf8");

    for (const [name, { worker, producer }] of Object.entries(PAIRS)) {
      expect(page).toContain(`npm run example -- ${name}`);
      expect(page).toContain(`(${producer.replace("examples/", "")})`);
      expect(page).toContain(`(../${worker})`);
    }
  });

  it("matches the script in package.json", async () => {
    const { scripts: named } = JSON.parse(await readFile("package.json", "utf8")) as {
      scripts: Record<string, string>;
    };

    expect(named["example"]).toBe("tsx --conditions=@sluice/source examples/run.ts");
  });
});

function escaped(text: string): string {
  return text.replaceAll(/[.?]/g, String.raw`\$&`);
}
