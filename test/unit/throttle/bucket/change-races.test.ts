import { describe, expect, it } from "vitest";
import { ChangedError, StoreUnavailableError } from "../../../../src/core/errors.ts";
import type { InsightStore } from "../../../../src/core/stores/insight/store.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryInsight } from "../../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { createBuckets } from "../../../../src/sluice/buckets.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";

/** Two operators of one bucket; before the first one does something in the store, the second can do something. */
function twoOperators() {
  const stored = createMemoryStore();
  const noted = createMemoryInsight();
  let meanwhile: (() => Promise<unknown>) | undefined;
  async function interrupt(): Promise<void> {
    const now = meanwhile;
    meanwhile = undefined;
    await now?.();
  }
  const insight: InsightStore = {
    ...noted,
    async noteChange(change) {
      await interrupt();
      return noted.noteChange(change);
    },
  };
  let isReplyLost = false;
  const store: Store = {
    ...stored,
    async steer(request) {
      const steered = await stored.steer(request);
      if (isReplyLost) throw new StoreUnavailableError("no answer", undefined);
      return steered;
    },
  };
  const logger = { warn: () => {}, error: () => {} };
  const [ann, bob] = [
    { store, insight },
    { store: stored, insight: noted },
  ].map((parts) => {
    const buckets = createBuckets({ ...parts, logger, isRemote: false, isCluster: false });
    return buckets.open("bucket()", "api", { rate: "100/s" });
  });
  return {
    ann: ann!,
    bob: bob!,
    insight: noted,
    beforeNext: (act: () => Promise<unknown>) => (meanwhile = act),
    loseReplies: () => (isReplyLost = true),
  };
}

describe("an undo by an operator", () => {
  it("undoes the latest change of another operator, and overwrites no unseen change", async () => {
    const { ann, bob, beforeNext } = twoOperators();
    await ann.configure({ rate: "20/s" });
    beforeNext(() => bob.configure({ rate: "30/s" }, { by: "bob" }));

    expect(await ann.undo()).toMatchObject({ by: "bob" });

    expect(await ann.peek()).toMatchObject({ policy: "20/s" });
  });

  it("keeps another operator's change if it was to undo one certain change", async () => {
    const { ann, bob, insight, beforeNext } = twoOperators();
    await ann.configure({ rate: "20/s" });
    const [change] = await insight.changes({ bucket: "api", before: undefined, limit: 1 });
    beforeNext(() => bob.configure({ rate: "30/s" }));

    expect(await rejectionOf(ann.undo({ id: change!.id }))).toBeInstanceOf(ChangedError);

    expect(await ann.peek()).toMatchObject({ policy: "30/s" });
  });

  it("is not blocked by cooldowns that begin in between", async () => {
    const { ann, bob, beforeNext } = twoOperators();
    await ann.configure({ rate: "20/s" });
    beforeNext(async () => bob.coolDown(undefined, 1_000));

    await ann.undo();

    expect(await ann.peek()).toMatchObject({ policyFrom: "code" });
  });
});

describe("while a policy is ended whose time is over", () => {
  async function overdue() {
    const operators = twoOperators();
    const { ann, insight } = operators;
    await ann.configure({ rate: "20/s" }, { by: "ann", forMs: 1 });
    const { overrides } = await insight.bucket("api");
    return { ...operators, override: overrides[0]! };
  }

  it("a cooldown that begins in between does not keep it", async () => {
    const { ann, bob, insight, override, beforeNext } = await overdue();
    beforeNext(async () => bob.coolDown(undefined, 1_000));

    await ann.expire(override);

    expect(await ann.peek()).toMatchObject({ policyFrom: "code" });
    expect((await insight.bucket("api")).overrides).toEqual([]);
  });

  it("the same policy with a longer time, set in between, stays", async () => {
    const { ann, bob, insight, override, beforeNext } = await overdue();
    beforeNext(() => bob.configure({ rate: "20/s" }, { by: "bob", forMs: 60_000 }));

    await ann.expire(override);

    expect(await ann.peek()).toMatchObject({ policy: "20/s", policyFrom: "configured" });
    expect((await insight.bucket("api")).overrides).toMatchObject([{ by: "bob" }]);
  });
});

it("a change whose reply was lost can be undone", async () => {
  const { ann, bob, loseReplies } = twoOperators();
  await ann.configure({ rate: "50/s" });
  loseReplies();
  await rejectionOf(ann.configure({ rate: "20/s" }, { by: "ann" }));

  expect(await bob.undo()).toMatchObject({ by: "ann" });

  expect(await bob.peek()).toMatchObject({ policy: "50/s" });
});

it("a change whose reply was lost still ends, and says who made it", async () => {
  const { ann, bob, insight, loseReplies } = twoOperators();
  loseReplies();
  await rejectionOf(ann.configure({ rate: "20/s" }, { by: "ann", forMs: 1 }));

  expect(await bob.status()).toMatchObject({ source: "override", setBy: { by: "ann" } });
  await bob.expire((await insight.bucket("api")).overrides[0]!);

  expect(await bob.peek()).toMatchObject({ policyFrom: "code" });
});
