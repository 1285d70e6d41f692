import { randomUUID } from "node:crypto";
import fc from "fast-check";
import type { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { bothRedis } from "../../support/redis/both-redis.ts";

type Command = readonly [name: string, ...operands: (string | number)[]];

const key = fc.constantFrom("a", "b");
const member = fc.constantFrom("x", "y", "zé", "10");
const index = fc.integer({ min: -4, max: 4 });
const score = fc.oneof(fc.integer({ min: -3, max: 3 }), fc.constantFrom("1.5", "-inf", "+inf"));
const bound = fc.oneof(
  score.map(String),
  fc.integer({ min: -3, max: 3 }).map((each) => `(${each}`),
);
const textBound = fc.constantFrom("-", "+", "[x", "(x", "[y");
const id = fc.constantFrom("1-1", "1-2", "2", "3-0", "5-5");
const streamBound = fc.oneof(id, fc.constantFrom("-", "+", "(1-1"));
const none = fc.constant<string[]>([]);
/** Texts of which Redis reads only some as whole numbers. */
const number = fc.constantFrom("1", "-2", "0", "1.0", "1e1", " 1", "+1", "-0", "0x1", "x", "");
const limit = fc.oneof(none, fc.tuple(fc.constant("LIMIT"), fc.integer({ min: 0, max: 2 }), index));
const withScores = fc.oneof(none, fc.constant(["WITHSCORES"]));

/** A command with a random value for each operand. Operands that are lists become several operands. */
function command(name: string, ...operands: fc.Arbitrary<unknown>[]): fc.Arbitrary<Command> {
  return fc.tuple(...operands).map((given) => [name, ...given.flat()] as unknown as Command);
}

const word = (...words: string[]): fc.Arbitrary<string[]> =>
  fc.oneof(none, fc.constantFrom(...words.map((each) => each.split(" "))));

const OF_TYPES: Readonly<Record<string, readonly fc.Arbitrary<Command>[]>> = {
  keys: [
    command("DEL", key),
    command("EXISTS", key, key),
    command("TYPE", key),
    command("RENAME", key, key),
    command("PERSIST", key),
    command("EXPIRE", key, fc.constant(100), word("NX", "XX", "GT", "LT")),
    command("TTL", key),
    command("EXPIREAT", key, fc.constant(1)),
    command("PEXPIRE", key, fc.constantFrom(100_000, -1, "1.5", "1e6", "x")),
    command("PEXPIREAT", key, fc.constantFrom(1, "x")),
    command("PTTL", key),
    command("UNLINK", key),
  ],
  strings: [
    command("SET", key, member, word("NX", "XX", "GET", "KEEPTTL", "EX 100", "BAD")),
    command(
      "SET",
      key,
      number,
      word("NX XX", "NX GET", "KEEPTTL EX 9", "EX x", "PX 0", "EX 9 PX 9"),
    ),
    command("INCR", key),
    command("DECRBY", key, number),
    command("GET", key),
    command("MGET", key, key),
    command("INCRBY", key, index),
    command("APPEND", key, member),
    command("STRLEN", key),
    command("GETRANGE", key, index, index),
    command("SETRANGE", key, fc.nat(4), member),
    command("SETNX", key, member),
    command("GETDEL", key),
  ],
  hashes: [
    command("HSET", key, member, member),
    command("HSETNX", key, member, member),
    command("HGET", key, member),
    command("HMGET", key, member, member),
    command("HDEL", key, member),
    command("HLEN", key),
    command("HEXISTS", key, member),
    command("HINCRBY", key, member, index),
    command("HINCRBY", key, member, number),
    command("HMSET", key, member, number),
    command("HGETALL", key),
    command("HKEYS", key),
    command("HVALS", key),
    command("HSCAN", key, fc.constant(0), word("COUNT 10", "MATCH x*")),
  ],
  lists: [
    command("LPUSH", key, member, member),
    command("RPUSH", key, member),
    command("LPOP", key),
    command("RPOP", key, fc.nat(2)),
    command("LRANGE", key, index, index),
    command("LTRIM", key, index, index),
    command("LREM", key, index, member),
    command("LPOS", key, member, word("RANK 2", "RANK -1", "COUNT 0", "COUNT 1 MAXLEN 2")),
    command("LINDEX", key, index),
    command("LINDEX", key, number),
    command("LPOP", key, number),
    command("LSET", key, index, member),
    command("LINSERT", key, fc.constantFrom("BEFORE", "AFTER"), member, member),
    command("RPOPLPUSH", key, key),
    command("LMOVE", key, key, fc.constantFrom("LEFT", "RIGHT"), fc.constantFrom("LEFT", "RIGHT")),
    command("LLEN", key),
  ],
  sets: [
    command("SADD", key, member),
    command("SREM", key, member),
    command("SCARD", key),
    command("SISMEMBER", key, member),
    command("SMOVE", key, key, member),
    command("SMEMBERS", key),
  ],
  "sorted sets": [
    command("ZADD", key, word("NX", "XX", "GT", "LT", "CH", "XX CH", "INCR"), score, member),
    command("ZADD", key, score, member, score, member),
    command(
      "ZADD",
      key,
      word("NX XX", "GT LT", "NX GT", "XX GT", "INCR NX", "CH LT"),
      score,
      member,
    ),
    command("ZADD", key, fc.constant("INCR"), score, member, score, member),
    command("ZADD", key, fc.constantFrom("nan", "x", "1e1", "0x1", " 1", "", "infinity"), member),
    command("ZINCRBY", key, score, member),
    command("ZPOPMIN", key, number),
    command("ZINCRBY", key, index, member),
    command("ZREM", key, member),
    command("ZSCORE", key, member),
    command("ZMSCORE", key, member, member),
    command("ZRANK", key, member),
    command("ZREVRANK", key, member),
    command("ZCOUNT", key, bound, bound),
    command("ZRANGE", key, index, index, withScores),
    command("ZRANGE", key, index, index, fc.constant("REV")),
    command("ZRANGE", key, bound, bound, fc.constant("BYSCORE"), limit),
    command("ZREVRANGE", key, index, index, withScores),
    command("ZRANGEBYSCORE", key, bound, bound, withScores, limit),
    command("ZREVRANGEBYSCORE", key, bound, bound, withScores, limit),
    command("ZREMRANGEBYSCORE", key, bound, bound),
    command("ZREMRANGEBYRANK", key, index, index),
    command("ZPOPMIN", key),
    command("ZPOPMAX", key, fc.nat(2)),
    command("ZUNIONSTORE", key, fc.constant(2), key, key, word("WEIGHTS 2 3", "AGGREGATE MAX")),
    command("ZCARD", key),
    command("ZSCAN", key, fc.constant(0), word("COUNT 10", "MATCH x*")),
  ],
  "sorted sets by text": [
    command("ZADD", key, fc.constant(0), member),
    command("ZRANGEBYLEX", key, textBound, textBound, limit),
    command("ZREVRANGEBYLEX", key, textBound, textBound),
    command("ZLEXCOUNT", key, textBound, textBound),
    command("ZREMRANGEBYLEX", key, textBound, textBound),
  ],
  streams: [
    command(
      "XADD",
      key,
      word("NOMKSTREAM", "MAXLEN 2", "MINID 2", "MAXLEN ~ 2"),
      id,
      member,
      member,
    ),
    command("XRANGE", key, streamBound, streamBound, word("COUNT 1")),
    command("XREVRANGE", key, streamBound, streamBound, word("COUNT 2")),
    command("XLEN", key),
    command("XDEL", key, id),
    command("XTRIM", key, fc.constantFrom(["MAXLEN", "1"], ["MINID", "2-0"])),
    command("XREAD", word("COUNT 1"), fc.constant("STREAMS"), key, id),
  ],
};

const { real, inMemory } = bothRedis();

/** Replies as text. Of an error, only its code is compared, because its text depends on the version. */
async function repliesOf(redis: Redis, commands: readonly Command[]): Promise<string[]> {
  const pipeline = redis.pipeline();
  for (const [name, ...operands] of commands) pipeline.call(name, ...operands);
  const replies = (await pipeline.exec())!;
  return replies.map(([error, reply], at) =>
    error === null
      ? JSON.stringify(comparable(commands[at]!, reply))
      : error.message.split(" ")[0]!,
  );
}

/** Removes from a reply what may differ: the time that has passed, and the order of a set's members. */
function comparable([name]: Command, reply: unknown): unknown {
  if (name === "PTTL") return Math.round((reply as number) / 10_000);
  return name === "SMEMBERS" ? (reply as string[]).toSorted() : reply;
}

describe("the server in memory", () => {
  it.for(Object.entries(OF_TYPES))(
    "replies as Redis does to commands of %s",
    async ([, ofType]) => {
      const others = fc.oneof(...OF_TYPES["keys"]!, ...Object.values(OF_TYPES).flat());
      const some = fc.oneof({ arbitrary: fc.oneof(...ofType), weight: 9 }, others);
      const histories = fc.array(some, { minLength: 1, maxLength: 40 });

      await fc.assert(
        fc.asyncProperty(histories, async (given) => {
          const tag = randomUUID();
          const own = given.map(
            (each) => each.map((word) => named(word, tag)) as unknown as Command,
          );

          const [expected, seen] = await Promise.all([
            repliesOf(real(), own),
            repliesOf(inMemory(), own),
          ]);

          expect(seen).toEqual(expected);
        }),
        { numRuns: 150 },
      );
    },
  );
});

/** Makes the keys of one history unique on a shared Redis. */
function named(word: string | number, tag: string): string | number {
  return word === "a" || word === "b" ? `${tag}:${word}` : word;
}
