import { describe, expect, it } from "vitest";
import { compilePolicy, formatPolicy } from "../../../src/core/policy/policy.ts";
import { policyUnder } from "../../../src/rules/compile.ts";
import { describeProblem } from "../../../src/rules/problem.ts";
import { checkRules } from "../../../src/rules/read.ts";

function problemsIn(text: string): string[] {
  return checkRules("s.yaml", text).problems.map((problem) => describeProblem("s.yaml", problem));
}

function policiesIn(text: string): Record<string, string> {
  const { buckets } = checkRules("s.yaml", text).rules!;
  const policies = [...buckets].map(([name, options]) => [
    name,
    formatPolicy(policyUnder("test", options, undefined)!),
  ]);
  return Object.fromEntries(policies) as Record<string, string>;
}

describe("a rules file", () => {
  it("accepts everything that a bucket accepts as data", () => {
    const text = `
version: 3
defaults: { shares: { low: 0.5 } }
buckets:
  api: { rate: 50/s, burst: 5, concurrency: 25 }
  object: { rate: { calls: 3, per: 2s } }
  openai:
    limits:
      - 500/min
      - { kind: leaky-bucket, rate: 90000/min, unit: tokens, burst: 4000 }
      - { kind: token-bucket, refill: 5/s, capacity: 10 }
      - { kind: sliding-log, max: 9000, per: 1h }
      - { kind: sliding-window, max: 5000, per: 1min }
      - { kind: fixed-window, max: 500, per: 1d, align: { at: "00:00", timeZone: UTC } }
      - { kind: concurrency, max: 9, leaseMs: 5000 }
      - { kind: budget, unit: usd, amount: 12.5, per: { days: 30 }, warnAt: [0.5] }
  shadowed: { limits: [100/s, { kind: leaky-bucket, rate: 50/s, shadow: true }] }
  levels: { rate: 500/s, perKey: [{ rate: 20/s }, null, { concurrency: 2 }] }
  names: { perKey: { account: { rate: 5/s }, ip: { limits: [7/s] } } }
  shared: { rate: 100/s, fair: { weights: { gold: 2 }, floors: { small: 20/s } } }
  parts:
    limits: [100/s, { kind: leaky-bucket, rate: 900/min, unit: tokens, burst: 50 }]
    fair: { floors: { acme: { tokens: 60/min } }, critical: 0.5 }
  arrival: { rate: 100/s, fair: false }
  turns: { rate: 100/s, fair: true }
  pool:
    members: { east: { rate: 6/min }, west: { limits: [9/min], drained: true } }
    prefer: [west]
    rate: 1/s
`;

    expect(policiesIn(text)).toEqual({
      api: "50/s with a burst of 5 + 25 at once",
      object: "90/min",
      openai:
        "500/min + 90000/min with a burst of 4000 tokens + up to 10, refilled at 5/s + 9000 in any 1h + 5000 in any 1min + 500 each 1d + 9 at once + 12.5/30 days usd",
      shadowed: "100/s; in shadow 50/s",
      levels: "500/s; per key 20/s (level 0), 2 at once (level 2)",
      names: "per key 5/s (account), 7/s (ip)",
      shared: "100/s; weights gold 2; floors small 20/s",
      parts:
        "100/s + 900/min with a burst of 50 tokens; floors acme 1/s tokens; critical calls up to 0.5 of the rate",
      arrival: "100/s; keys take no turns",
      pool: "1/s; members east 6/min, west 9/min (drained)",
      turns: "100/s",
    });
  });

  it("may be JSON, and omit default values", () => {
    const text =
      '{ "defaults": { "rate": "5/s" }, "buckets": { "a": {}, "b": { "burst": 2 }, "c": null } }';

    expect(policiesIn(text)).toEqual({ a: "5/s", b: "5/s with a burst of 2", c: "5/s" });
  });

  it("may name tiers, which the limits of keys refer to", () => {
    const text = `
tiers:
  free: { rate: 1/s }
  pro: { rate: 20/s, concurrency: 5 }
defaults: { perKey: { tier: free } }
buckets:
  a: { rate: 100/s }
  b: { perKey: { tier: pro, rate: 30/s } }
  c: { rate: 100/s, perKey: [{ tier: pro }, null, { tier: free }] }
  d: { perKey: { account: { tier: free }, ip: { rate: 7/s } } }
  e: { perKey: { tier: { tier: free }, ip: { rate: 7/s } } }
`;

    expect(policiesIn(text)).toEqual({
      a: "100/s; per key 1/s",
      b: "per key 30/s + 5 at once",
      c: "100/s; per key 20/s + 5 at once (level 0), 1/s (level 2)",
      d: "per key 1/s (account), 7/s (ip)",
      e: "per key 1/s (tier), 7/s (ip)",
    });
  });

  it.each([
    [
      "a tier that is none",
      "tiers: { free: { rate: 1/s } }\nbuckets:\n  a: { perKey: [{ tier: fre }] }",
      's.yaml:3:25: buckets.a.perKey[0].tier is "fre"; there is no such tier; did you mean free?',
    ],
    [
      "a table of tiers, as code has it",
      "buckets: { a: { perKey: { tiers: { free: { rate: 1/s } } } } }",
      "s.yaml:1:25: buckets.a.perKey.tierOf; only code can set it; in the file, define tiers at the top, such as tiers: { free: { rate: 1/s } }, and give { tier: free }.",
    ],
    [
      "a tier in a file without tiers",
      "buckets: { a: { perKey: { tier: free } } }",
      's.yaml:1:33: buckets.a.perKey.tier is "free"; there is no such tier; name it in tiers.',
    ],
    [
      "a tier that is none in the defaults, once",
      "defaults: { perKey: { tier: free } }\nbuckets: { a: { rate: 1/s }, b: { rate: 1/s } }",
      's.yaml:1:29: defaults.perKey.tier is "free"; there is no such tier; name it in tiers.',
    ],
    [
      "a tier with a wrong rate",
      "tiers: { free: { rate: 1 } }\nbuckets: {}",
      /^s\.yaml:1:24: tiers\.free\.rate is 1; /,
    ],
    [
      "what of a queue cannot change while it is open",
      "queues: { mail: { ordered: true } }\nbuckets: {}",
      /^s\.yaml:1:19: queues\.mail\.ordered is true; queued jobs are in lanes of the old order/,
    ],
    [
      "a rate of an endpoint that is none",
      "buckets: {}\nendpoints: { hooks: { tenants: { acme: { endpoints: { a: { rate: 5 } } } } } }",
      /^s\.yaml:2:66: endpoints\.hooks\.tenants\.acme\.endpoints\.a\.rate is 5; write whole calls/,
    ],
    [
      "a burst of an endpoint",
      "buckets: {}\nendpoints: { hooks: { perEndpoint: { burst: 5 } } }",
      "s.yaml:2:38: endpoints.hooks.perEndpoint.burst is 5; only code can set it; in the file, tenants and endpoints have a rate and a concurrency.",
    ],
    [
      "a name that no tenant has",
      "buckets: {}\nendpoints: { hooks: { tenants: { acme: { perEndpont: 5 } } } }",
      "s.yaml:2:42: endpoints.hooks.tenants.acme.perEndpont is 5; there is no such name; did you mean perEndpoint?",
    ],
    [
      "a number for a rate",
      "buckets: { a: { rate: 50 } }",
      /^s\.yaml:1:23: buckets\.a\.rate is 50; write whole calls/,
    ],
    [
      "a name of none",
      "buckets:\n  a: { rat: 5/s }",
      's.yaml:2:8: buckets.a.rat is "5/s"; there is no such option; did you mean rate?',
    ],
    [
      "a shadow of keys",
      "buckets:\n  a: { rate: 5/s, perKey: { rate: 1/s, shadow: true } }",
      "s.yaml:2:48: buckets.a.perKey.shadow is true; only limits that all keys share can be shadows; leave it out here.",
    ],
    [
      "a shadow of calls at once",
      "buckets:\n  a: { limits: [5/s, { kind: concurrency, max: 5, shadow: true }] }",
      /^s\.yaml:2:51: buckets\.a\.limits\[1\]\.shadow is true; there is no such option/,
    ],
    [
      "no buckets",
      "version: 1",
      "s.yaml:1:1: buckets; give the limits of buckets by name, such as { api: { rate: 50/s } }.",
    ],
    [
      "a name nearby",
      "bucket: {}\nbuckets: {}",
      "s.yaml:1:1: bucket is {}; there is no such name; did you mean buckets?",
    ],
    [
      "nothing",
      "",
      "s.yaml:1:1: the file; give buckets, such as buckets: { api: { rate: 50/s } }.",
    ],
    ["a list", "- a", /^s\.yaml:1:1: the file is \["a"\]; give buckets/],
    ["half a file", "buckets: { a: { rate: 5/s", /^s\.yaml:1:26: the file; /],
    [
      "a name twice",
      "buckets:\n  a: { rate: 1/s }\n  a: { rate: 2/s }",
      "s.yaml:3:3: the file; a appears twice.",
    ],
    [
      "a version that is none",
      "version: 1.5\nbuckets: {}",
      /^s\.yaml:1:10: version is 1\.5; give a whole number/,
    ],
    [
      "a bucket that is none",
      "buckets: { a: 7 }",
      "s.yaml:1:15: buckets.a is 7; give limits, such as { rate: 50/s }.",
    ],
    [
      "an empty bucket",
      "buckets:\n  a:\n",
      /^s\.yaml:2:5: buckets\.a\.rate; a bucket needs a limit/,
    ],
    [
      "a bad name of a bucket",
      'buckets: { "a:b": { rate: 1/s } }',
      /^s\.yaml:1:12: buckets\.a:b is "a:b"; leave out/,
    ],
    [
      "a prototype",
      "buckets: { __proto__: { rate: 1/s } }",
      /^s\.yaml:1:12: .*; give __proto__ another name/,
    ],
    [
      "a prototype of tiers",
      "tiers: { __proto__: { rate: 1/s } }\nbuckets: { a: { rate: 5/s, perKey: { tier: __proto__ } } }",
      /^s\.yaml:1:10: .*; give __proto__ another name/,
    ],
    [
      "a prototype of keys",
      "buckets: { a: { rate: 5/s, perKey: { __proto__: { rate: 1/s } } } }",
      /^s\.yaml:1:38: .*; give __proto__ another name/,
    ],
    [
      "a kind of none",
      "buckets: { a: { limits: [{ kind: nope }] } }",
      /^s\.yaml:1:34: buckets\.a\.limits\[0\]\.kind is "nope"; give leaky-bucket/,
    ],
    [
      "a limit without its window",
      "buckets: { a: { limits: [{ kind: sliding-log, max: 5 }] } }",
      /^s\.yaml:1:26: buckets\.a\.limits\[0\]\.per; write a time/,
    ],
    [
      "a share above 1",
      "buckets: { a: { rate: 1/s, shares: { low: 2 } } }",
      /^s\.yaml:1:43: buckets\.a\.shares\.low is 2; give a part/,
    ],
    [
      "a negative weight",
      "buckets: { a: { rate: 1/s, fair: { weights: { acme: -1 } } } }",
      /^s\.yaml:1:53: buckets\.a\.fair\.weights\.acme is -1; give each key a number from/,
    ],
    [
      "floors above the limit",
      "buckets: { a: { rate: 9/s, fair: { floors: { acme: 10/s } } } }",
      /^s\.yaml:1:44: buckets\.a\.fair\.floors is .*; the floors add up to 10 calls a second/,
    ],
    [
      "a floor of a unit without a limit",
      "buckets: { a: { rate: 9/s, fair: { floors: { acme: { tokens: 1/s } } } } }",
      /^s\.yaml:1:52: buckets\.a\.fair\.floors\.acme is .*no such rate of tokens/,
    ],
    [
      "an unknown name in fair",
      "buckets: { a: { rate: 9/s, fair: { weigths: { acme: 2 } } } }",
      /^s\.yaml:1:36: buckets\.a\.fair\.weigths is .*; there is no such option; did you mean weights/,
    ],
    [
      "fair as a text",
      "buckets: { a: { rate: 9/s, fair: yes please } }",
      /^s\.yaml:1:34: buckets\.a\.fair is "yes please"; give true, false, or/,
    ],
    [
      "a bad weight in the defaults",
      "defaults: { fair: { weights: { acme: 0 } } }\nbuckets: { a: { rate: 9/s } }",
      /^s\.yaml:1:38: defaults\.fair\.weights\.acme is 0; give each key/,
    ],
    [
      "a bad level",
      "buckets: { a: { perKey: [{ rate: 1/s }, { burst: 5 }] } }",
      /^s\.yaml:1:41: buckets\.a\.perKey\[1\]\.rate; write/,
    ],
    [
      "a bad name of keys",
      "buckets: { a: { perKey: { ip: { rate: x } } } }",
      /^s\.yaml:1:39: buckets\.a\.perKey\.ip\.rate is "x"/,
    ],
    [
      "bad defaults, once",
      "defaults: { x: 1 }\nbuckets: { a: {}, b: {} }",
      "s.yaml:1:13: defaults.x is 1; there is no such option.",
    ],
    ["code", "buckets: { a: !!js/function x }", /^s\.yaml:1:15: the file; Unresolved tag/],
    [
      "a bomb of aliases",
      `a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c]\nbuckets: {}`,
      /Excessive alias count/,
    ],
    ["a name that is a list", "buckets: { ? [1] : { rate: 1/s } }", /keys must be strings/],
  ])("is refused with %s, and the error has its position", (_what, text, message) => {
    const problems = problemsIn(text);

    expect(problems[0]).toMatch(message);
    expect(problems.every((problem) => /^s\.yaml:\d+:\d+: /.test(problem))).toBe(true);
  });

  it("lists all problems, in the order of their lines", () => {
    const problems = problemsIn(
      "version: x\nbuckets:\n  a: { rate: 1 }\n  b: { burst: 1 }\n  c: { rate: 5/s }\n",
    );

    expect(problems.map((problem) => problem.split(": ", 2).join(": "))).toEqual([
      's.yaml:1:10: version is "x"; give a whole number of versions from 1 to 9007199254740991.',
      's.yaml:3:14: buckets.a.rate is 1; write whole calls per time, from 1 to 1,000,000,000, such as "100/s", "60/minute", "5000/h", "1/2s" or { calls',
      's.yaml:4:6: buckets.b.rate; write whole calls per time, from 1 to 1,000,000,000, such as "100/s", "60/minute", "5000/h", "1/2s" or { calls',
    ]);
  });

  it("has the same meaning with other comments and spaces", () => {
    const digests = [
      "buckets: { a: { rate: 1/s } }",
      "# why\nbuckets:\n  a:\n    rate: 1/s",
      "buckets: { a: { rate: 2/s } }",
    ].map((text) => checkRules("s.yaml", text).rules!.digest);

    expect(digests[0]).toBe(digests[1]);
    expect(digests[0]).not.toBe(digests[2]);
  });
});

describe("the turns of keys in a rules file", () => {
  const optionsIn = (text: string) => checkRules("s.yaml", text).rules!.buckets.get("a")!;

  it("may stand beside limits of keys, if the code has a limit for all calls", () => {
    const options = optionsIn(
      "buckets: { a: { perKey: { rate: 5/s }, fair: { floors: { x: 2/s } } } }",
    );
    const under = (code: object) => policyUnder("test", options, compilePolicy("test", code));

    expect(policyUnder("test", options, undefined)).toBeUndefined();
    expect(formatPolicy(under({ rate: "9/s" })!)).toBe("9/s; per key 5/s; floors x 2/s");
    expect(() => under({ rate: "1/s" })).toThrow("the limit gives 1;");
    expect(() => under({ perKey: { rate: "9/s" } })).toThrow("share no limit");
  });

  it("override those of the code, and keep them if the file leaves them out", () => {
    const code = compilePolicy("test", { rate: "9/s", fair: { weights: { x: 2 } } });
    const policyOf = (text: string) => formatPolicy(policyUnder("test", optionsIn(text), code)!);

    expect(policyOf("buckets: { a: { rate: 5/s } }")).toBe("5/s; weights x 2");
    expect(policyOf("buckets: { a: { rate: 5/s, fair: true } }")).toBe("5/s");
  });
});
