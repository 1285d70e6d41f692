import fc from "fast-check";
import type { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { bothRedis } from "../../support/redis/both-redis.ts";

const { real, inMemory } = bothRedis();

/** The reply of a script as text, or the message of its error without what names the script. */
async function outcomeOf(redis: Redis, source: string, args: (string | Buffer)[]): Promise<string> {
  try {
    return JSON.stringify(await redis.eval(source, 1, "conformance:key", ...args));
  } catch (error) {
    return (error as Error).message
      .replace(/ script: .*$/, "")
      .replaceAll(/user_script:\d+: /g, "");
  }
}

interface Outcomes {
  readonly seen: string;
  readonly expected: string;
}

async function outcomesOf(source: string, ...args: (string | Buffer)[]): Promise<Outcomes> {
  const expected = await outcomeOf(real(), source, args);
  return { seen: await outcomeOf(inMemory(), source, args), expected };
}

/** JSON without what lua-cjson itself changes: long fractions, and arrays that are empty. */
const leaf = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.integer(),
  fc.boolean(),
  fc.constant(null),
  fc.constantFrom(0.5, 1e21, -1.25e-7, 1_790_000_000_123),
);
const json = fc.letrec((tie) => ({
  value: fc.oneof({ depthSize: "small" }, leaf, tie("list"), tie("object")),
  list: fc.array(tie("value"), { minLength: 1, maxLength: 4 }),
  object: fc.dictionary(fc.string({ unit: "grapheme", maxLength: 5 }), tie("value"), {
    maxKeys: 1,
  }),
})).value;

describe("scripts on the server in memory", () => {
  it("run no part of a command's name as code", async () => {
    const name = "get(1).x=globalThis;$c.get";
    const script = `return redis.call(${JSON.stringify(name)}, "k")`;

    for (const redis of [real(), inMemory()]) {
      await expect(redis.eval(script, 0)).rejects.toThrow(/command/i);
      await expect(redis.eval("return redis.call(KEYS[1], 'k')", 1, "constructor")).rejects.toThrow(
        /command/i,
      );
    }
  });

  it("read and write JSON as Redis does", async () => {
    const script = "return cjson.encode({cjson.decode(ARGV[1])[1]})";
    await fc.assert(
      fc.asyncProperty(json, async (value) => {
        const { seen, expected } = await outcomesOf(script, JSON.stringify([value]));

        expect(seen).toBe(expected);
      }),
      { numRuns: 200 },
    );
  });

  it("read MessagePack as Redis does", async () => {
    const pack = "return cmsgpack.pack(cjson.decode(ARGV[1]))";
    const script = "return cjson.encode(cmsgpack.unpack(ARGV[1]))";
    await fc.assert(
      fc.asyncProperty(json, async (value) => {
        const packed = await real().callBuffer("EVAL", pack, 0, JSON.stringify([value]));

        const { seen, expected } = await outcomesOf(script, packed as Buffer);

        expect(seen).toBe(expected);
      }),
      { numRuns: 200 },
    );
  });

  it.each([
    ["a failed command", "redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 1)"],
    [
      "a caught failure",
      "redis.call('SET', KEYS[1], 1) return type(redis.pcall('LPOP', KEYS[1]).err)",
    ],
    ["an error reply", "return redis.error_reply('SLUICE no')"],
    ["a status reply", "return redis.status_reply('FINE')"],
    [
      "pcall",
      "local ok, why = pcall(function() error('why') end) return {tostring(ok), type(why)}",
    ],
    ["an unknown command", "return redis.call('NOSUCH')"],
    ["a list with nil", "return {1, 2.9, true, false, 'x', nil, 3}"],
    ["empty JSON", "return cjson.encode({})"],
    [
      "null in JSON",
      "return {type(cjson.decode('[null]')[1]), cjson.encode(cjson.decode('[null]'))}",
    ],
    [
      "repetitions",
      "return {string.match('7-50', '^(%d+)-(%d+)$'), string.match('a)b)', 'a%)-b'), string.match('-a', '-a')}",
    ],
    ["bad JSON", "return type(pcall(cjson.decode, 'no'))"],
    [
      "string functions",
      "return {string.byte('ab', 1, -1), string.char(104, 105), string.upper('aé'), string.len('é'), string.lower('AB')}",
    ],
    [
      "loops with computed steps",
      "local s, out = tonumber(ARGV[1]), {} for i = 5, 1, s do out[#out + 1] = i end return out",
    ],
    [
      "patterns",
      "return {string.match('a:b:c', '.*:(.*)'), tostring(string.match('a b', '^[%w_:%%%-]+$')), string.find('a|b', '|', 1, true)}",
    ],
  ])("have the same outcome for %s", async (_, source) => {
    const { seen, expected } = await outcomesOf(source, "-2");

    expect(seen).toBe(expected);
  });
});
