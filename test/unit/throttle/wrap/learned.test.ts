import { describe, expect, it } from "vitest";
import type { LearnRequest } from "../../../../src/core/store.ts";
import { createLearned } from "../../../../src/throttle/wrap/call-defaults.ts";
import { deferred } from "../../../support/async/deferred.ts";

const silent = { warn() {}, error() {} };

describe("what a process has learned", () => {
  it("is nothing while the store fails, and each failure is said", async () => {
    const warnings: string[] = [];
    const logger = { warn: (_facts: object, text: string) => void warnings.push(text), error() {} };
    const store = { learn: async () => Promise.reject(new Error("away")) };
    const learned = createLearned(store, "b", logger);

    expect(await learned.means()).toEqual(new Map());
    learned.learn("model", 1);
    await learned.settled();

    expect(warnings).toHaveLength(2);
    expect(warnings[0]).toMatch(/^Could not learn/);
  });

  it("sends what comes in while a request is under way with the next one", async () => {
    const sent: (readonly string[])[] = [];
    const answered = deferred();
    const store = {
      async learn({ seen }: LearnRequest) {
        sent.push(seen.map(({ name, ratio }) => `${name} ${ratio}`));
        if (sent.length === 1) await answered.promise;
        return new Map([["a", 250_000]]);
      },
    };
    const learned = createLearned(store, "b", silent);

    learned.learn("a", 0.25);
    learned.learn("a", 0.5);
    learned.learn("b", 2);
    answered.resolve();
    await learned.settled();

    expect(sent).toEqual([["a 250000"], ["a 500000", "b 2000000"]]);
    expect(await learned.means()).toEqual(new Map([["a", 0.25]]));
  });

  it.each([Number.NaN, -1, undefined as unknown as number])(
    "does not change by a ratio of %s",
    async (ratio) => {
      const store = { learn: async () => Promise.reject(new Error("asked")) };
      const learned = createLearned(store, "b", { ...silent, warn: () => expect.unreachable() });

      learned.learn("a", ratio);
      await learned.settled();

      expect(ratio).not.toBe(1);
    },
  );
});
