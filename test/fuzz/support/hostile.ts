import fc from "fast-check";

type Any = fc.Arbitrary<unknown>;

/** What an accessor of the caller's own throws; it may pass through, since no user can send one. */
export class OwnError extends Error {}

/** Texts that mean something to Redis, Lua, JavaScript, JSON or a log, and any others. */
export const hostileText: fc.Arbitrary<string> = fc.oneof(
  { weight: 6, arbitrary: fc.string({ unit: "binary", maxLength: 12 }) },
  { weight: 2, arbitrary: fc.string({ unit: "grapheme", maxLength: 300 }) },
  {
    weight: 8,
    arbitrary: fc.constantFrom(
      "",
      " ",
      ":",
      "a:b",
      "{",
      "}",
      "{a}",
      "a}:state",
      "%",
      "%3A",
      "%253A",
      "*",
      "?",
      "a\nb",
      "\0",
      "a\0b",
      "\r\nSet-Cookie: a=b",
      "\ud800",
      "\udc00a",
      "\u2028",
      "\u202e",
      "é",
      "é",
      "__proto__",
      "constructor",
      "prototype",
      "toString",
      "hasOwnProperty",
      "then",
      "toJSON",
      "state",
      "turns",
      "holes",
      "meta",
      "lanes:state",
      "wait",
      "de:a",
      "1",
      "repeat:a:1",
      "'] redis.call('FLUSHALL') --[[",
      "return redis.call('KEYS', '*')",
      "KEYS[1]",
      "${1}",
      "100/s",
      "1/0s",
      "0/s",
      "1e309/s",
      "999999999999/s",
      "1s",
      "366d",
      "367d",
      "Infinity",
    ),
  },
  { weight: 1, arbitrary: fc.constantFrom("x".repeat(256), "x".repeat(257), "é".repeat(256)) },
);

/** The same, and now and then a whole megabyte. */
export const hostileName: fc.Arbitrary<string> = fc.oneof(
  { weight: 40, arbitrary: hostileText },
  { weight: 1, arbitrary: fc.constantFrom("x".repeat(1_000_000), "{}:\n".repeat(250_000)) },
);

export const hostileNumber: fc.Arbitrary<number> = fc.oneof(
  fc.integer(),
  fc.double(),
  fc.constantFrom(0, -0, -1, 0.5, 1, 2, 1e3, 1e9, 1e15, 2 ** 31, 2 ** 53, 1e300),
  fc.constantFrom(Number.NaN, Infinity, -Infinity, Number.MIN_VALUE),
);

/** What JSON can hold, `__proto__` and its like included: so much a user can send. */
export const hostileJson: Any = fc.letrec<{ any: unknown }>((tie) => ({
  any: fc.oneof(
    { depthSize: "small" },
    fc.oneof(hostileText, hostileNumber, fc.boolean(), fc.constant(null)),
    fc.array(tie("any"), { maxLength: 4 }),
    fc.array(fc.tuple(hostileText, tie("any")), { maxLength: 4 }).map(asRecord),
  ),
})).any;

function cyclic(): unknown {
  const cycle: Record<string, unknown> = {};
  return Object.assign(cycle, { cycle, list: [cycle] });
}

/** Throws whatever is done to it, but for what fast-check asks of each value, by symbols. */
function throwing(): unknown {
  const fail = (_target: object, name?: unknown): undefined => {
    if (typeof name === "symbol") return undefined;
    throw new OwnError("an accessor of the caller's own");
  };
  const has = (target: object, name: string | symbol): boolean => Boolean(fail(target, name));
  return new Proxy({}, { get: fail, has, ownKeys: fail as never, getOwnPropertyDescriptor: fail });
}

/** What only code can make. */
const exotic: Any = fc.oneof(
  fc.constantFrom(undefined, Symbol("a\nb"), Symbol.iterator, 5n, -1n, new Date(Number.NaN)),
  fc.constantFrom(
    /a/g,
    new Map([["rate", "1/s"]]),
    new Set([1]),
    new Uint8Array(3),
    new Error("e"),
  ),
  fc.constantFrom(new URL("http://a:b@c"), new AbortController().signal, Promise.resolve(1)),
  fc.constantFrom(Number, String, Date, Object.create(null) as object),
  fc.constantFrom(throwing, cyclic).map((make) => make()),
  fc.func(fc.constantFrom<unknown>("acme", 1, undefined, null, {}, [], 5n, Symbol("s"))),
);

export const hostileValue: Any = fc.oneof(
  { weight: 3, arbitrary: fc.oneof(hostileText, hostileNumber) },
  { weight: 3, arbitrary: hostileJson },
  { weight: 2, arbitrary: exotic },
);

/** Options: names that are known and others, with values that may be right and others. */
export function hostileOptions(known: Readonly<Record<string, Any>>): fc.Arbitrary<never> {
  const right = fc.oneof(
    ...Object.entries(known).map(([name, value]) => fc.tuple(fc.constant(name), value)),
  );
  const wrong = fc.tuple(
    fc.oneof(fc.constantFrom(...Object.keys(known)), hostileText),
    hostileValue,
  );
  const entries = fc.array(
    fc.oneof({ weight: 4, arbitrary: right }, { weight: 1, arbitrary: wrong }),
    {
      maxLength: 4,
    },
  );
  const options = fc.oneof(
    { weight: 9, arbitrary: entries.map(asRecord) },
    { weight: 1, arbitrary: hostileValue },
  );
  return options as fc.Arbitrary<never>;
}

/** `__proto__` becomes a property of its own, as JSON.parse makes it. */
function asRecord(entries: readonly (readonly [string, unknown])[]): object {
  const record = {};
  for (const [name, value] of entries) {
    const property = { value, enumerable: true, writable: true, configurable: true };
    Object.defineProperty(record, name, property);
  }
  return record;
}
