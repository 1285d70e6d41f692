import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import fc from "fast-check";
import type { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { runScript } from "../../src/stores/redis/scripts/script.ts";
import { allScripts } from "../support/lua/all-scripts.ts";
import { hostileJson, hostileText } from "./support/hostile.ts";
import { forAll } from "./support/outcomes.ts";

const ROOT = new URL("../../", import.meta.url);
const ALL = await allScripts();

/** The text of a file in `lua/`, its includes in their places, and nothing else. */
function textOf(name: string): string {
  const lines = readFileSync(new URL(`lua/${name}.lua`, ROOT), "utf8").split("\n");
  return lines
    .map((line) => (line.startsWith("-- @include ") ? textOf(line.slice(12).trim()) : line))
    .join("\n");
}

function filesBelow(folder: string): string[] {
  return readdirSync(new URL(folder, ROOT), { recursive: true, encoding: "utf8" });
}

describe("the text of a script", () => {
  it("is known here of every file", () => {
    const files = filesBelow("lua/").filter((path) => /^(?!lib\/).+\.lua$/.test(path));

    // Two kinds of input may go to one script.
    const known = new Set(ALL.map(({ name }) => `${name}.lua`));
    expect([...known].sort()).toEqual(files.sort());
  });

  it.each(ALL)("of $name is that of its files", ({ name, source, sha }) => {
    expect(source).toBe(textOf(name));
    expect(sha).toBe(createHash("sha1").update(source).digest("hex"));
  });

  it("is sent by one file alone, and those of BullMQ, as it defines them, by another", () => {
    const sends = /\b(?:eval|evalsha|eval_ro|evalsha_ro|defineCommand|fcall|function\("load)\b/i;
    // The server in memory receives scripts.
    const files = filesBelow("src/").filter(
      (path) => path.endsWith(".ts") && !path.startsWith("stores/memory/redis/server/"),
    );

    const senders = files.filter((path) => {
      const code = readFileSync(new URL(`src/${path}`, ROOT), "utf8").replaceAll(
        /\/\*[^]*?\*\/|\/\/.*/g,
        "",
      );
      return sends.test(code);
    });

    expect(senders).toEqual([
      "stores/redis/ioredis/for-bullmq.ts",
      "stores/redis/scripts/script.ts",
    ]);
  });

  it("is the same whatever is asked, also of a server that is full or has forgotten it", async () => {
    const refusals = fc.constantFrom("NOSCRIPT No matching script.", "OOM command not allowed");
    const any = fc.dictionary(fc.string(), hostileJson, { maxKeys: 2 });
    const given = fc.tuple(fc.constantFrom(...ALL), hostileText, hostileText, any, refusals);
    await forAll(400, given, async ([script, text, other, more, refusal]) => {
      const sent: unknown[][] = [];
      const call = async (...parts: unknown[]): Promise<never> => {
        sent.push(parts);
        throw new Error(sent.length === 1 ? refusal : "enough");
      };
      const redis = { call, callBuffer: call } as unknown as Redis;
      await runScript(redis, script, inputOf(text, other, more) as never).catch(() => undefined);

      const texts = sent.map(([, code]) => String(code));
      expect(texts[0] ?? script.sha).toBe(script.sha);
      const isFull = refusal.startsWith("OOM");
      const first = isFull ? "redis.call('DEL', KEYS[1] .. ':none')\n" : "";
      expect(texts[1] ?? first + script.source).toBe(first + script.source);
    });
  });
});

/** What is common to all requests, made of these texts. */
function inputOf(text: string, other: string, more: Readonly<Record<string, unknown>>): object {
  const limit = { kind: "leaky-bucket", unit: text, count: 1, periodUs: 1, capacity: 1 };
  const position = { turnUs: 0, turnName: other, sinceUs: 0 };
  const scopes = [{ key: text, limits: [limit], position }];
  const slotRequest = {
    name: other,
    scopes,
    wanted: 1,
    rank: 1,
    costs: [1],
  };
  return {
    ...more,
    prefix: text,
    bucket: other,
    queue: text,
    replica: other,
    worker: text,
    id: other,
    key: text,
    terms: { limits: [limit], shares: [1, 1, 1, 1], text, version: 1 },
    scope: scopes[0],
    scopes,
    slotRequests: [slotRequest],
    slotRequest,
    position,
    leases: [1],
    slotsUs: [1],
    deltas: [1],
    jobs: [{ id: text }],
    arrived: [text],
    probes: [],
    woken: [other],
    want: 1,
    forMs: 1,
    count: 1,
    process: text,
    ids: [other],
    begins: true,
    change: { do: "pause", durationUs: 1 },
  };
}
