import { afterEach, expect, it, onTestFinished, vi } from "vitest";
import { StoreUnavailableError } from "../../../src/core/errors.ts";
import { compilePolicy, formatPolicy, type Policy } from "../../../src/core/policy/policy.ts";
import type { PoolPolicyOptions } from "../../../src/core/policy/pool.ts";
import { optionsOf, policyUnder } from "../../../src/rules/compile.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { putInForce, type RulesInUse, type RulesParts } from "../../../src/rules/apply.ts";
import { combineInsight } from "../../../src/stores/redis/shards.ts";
import { readRules } from "../../../src/rules/read.ts";
import { rejectionOf } from "../../support/async/rejection.ts";

const FILE = "version: 1\nbuckets: { api: { rate: 50/s }, b: { rate: 5/s } }";

let rules: RulesInUse | undefined;
afterEach(() => rules?.close());

function use(parts: Pick<RulesParts, "insight" | "codeOf">): {
  readonly rules: RulesInUse;
  readonly steered: string[];
} {
  const steered: string[] = [];
  const logger = { warn: () => {}, error: () => {} };
  const made = putInForce(
    { ...readRules("s.yaml", FILE), changedAtMs: 1 },
    {
      ...parts,
      logger,
      replica: () => "a",
      by: "web:1",
      steer: async (bucket, policy) => void steered.push(`${bucket}: ${formatPolicy(policy)}`),
      assertSameServers: () => {},
    },
  );
  rules = made;
  return { rules: made, steered };
}

it("keep code in force that is declared while they are read", async () => {
  const insight = createMemoryInsight();
  const code = new Map<string, Policy>();
  const made = use({
    codeOf: (name) => code.get(name),
    insight: {
      ...insight,
      async offerRules(offer) {
        if (!code.has("api")) {
          code.set("api", compilePolicy("test", { rate: "9/s", perKey: { rate: "2/s" } }));
          made.rules.noteDeclared("api");
        }
        return insight.offerRules(offer);
      },
    },
  });

  await made.rules.settle();

  expect(made.steered.at(-1)).toBe("api: 50/s; per key 2/s");
});

it("override code that is declared later, even if the store was unreachable at that moment", async () => {
  const insight = createMemoryInsight();
  const code = new Map<string, Policy>();
  let isAway = false;
  const { rules, steered } = use({
    codeOf: (name) => code.get(name),
    insight: {
      ...insight,
      async bucket(name) {
        if (isAway) throw new StoreUnavailableError("draw", new Error("away"));
        return insight.bucket(name);
      },
    },
  });
  await rules.settle();
  expect(steered.splice(0)).toEqual(["api: 50/s", "b: 5/s"]);

  for (const name of ["api", "b"]) {
    code.set(name, compilePolicy("test", { rate: "9/s", perKey: { rate: "2/s" } }));
    rules.noteDeclared(name);
  }
  isAway = true;
  expect(await rejectionOf(rules.settle())).toBeInstanceOf(StoreUnavailableError);
  isAway = false;
  await rules.settle();

  expect(steered.toSorted()).toEqual(["api: 50/s; per key 2/s", "b: 5/s; per key 2/s"]);
});

it("reach the buckets of a server that missed one request, even if it responds right after", async () => {
  const [near, far] = [createMemoryInsight(), createMemoryInsight()];
  let misses = 0;
  const slow: typeof far = {
    ...far,
    async noteRules(note) {
      if (misses++ === 0) throw new StoreUnavailableError("rules", new Error("away"));
      return far.noteRules(note);
    },
  };
  const insight = combineInsight([near, slow], (name) => (name === "b" ? slow : near));
  const { rules, steered } = use({ insight, codeOf: () => undefined });

  await rules.settle().catch(() => undefined);
  await rules.settle();

  expect(misses).toBe(2);
  expect(steered).toContain("api: 50/s");
  expect(steered).toContain("b: 5/s");
});

it("are sent to a store that misses one request, even if they are given up then", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let asked = 0;
  const { rules } = use({
    codeOf: () => undefined,
    insight: {
      ...createMemoryInsight(),
      async declaredOf() {
        asked += 1;
        // As long as a store takes to find no Redis, the timers of the rules run.
        await vi.advanceTimersByTimeAsync(20);
        throw new StoreUnavailableError("rules", new Error("away"));
      },
    },
  });

  expect(await rejectionOf(rules.settle())).toBeInstanceOf(StoreUnavailableError);
  await rules.close();

  expect(asked).toBe(1);
});

it("change the members of a pool that code declares, and need its code for that", () => {
  const code = compilePolicy("test", {
    members: { east: { rate: "6/min" }, west: { rate: "6/min" } },
    prefer: ["east"],
  } as PoolPolicyOptions);
  const members = { east: null, west: { drained: true }, north: { limits: ["1/s"] } };

  const policy = policyUnder("test", optionsOf({ members }), code);

  expect(policy && formatPolicy(policy)).toBe("members west 6/min (drained), north 1/s");
  expect(policy?.pool?.prefer).toBe("spread");
  expect(policyUnder("test", optionsOf({ members }), undefined)).toBeUndefined();
  expect(policyUnder("test", optionsOf({ stickyBy: "key" }), undefined)).toBeUndefined();
});
