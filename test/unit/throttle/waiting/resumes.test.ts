import { describe, expect, it, vi } from "vitest";
import type { Store, Wake } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

const advance = fakeTimers();
const PER_KEY = { perKey: { rate: "100/s" } };
const KEYS = Array.from({ length: 30 }, (_, number) => `key ${number}`);

/** Two replicas; the first one's next draw is answered a while after the other has done something. */
function open(policy: object, store: Store = createMemoryStore()) {
  const [here, there] = [1, 2].map(() => createTestBucket(policy, { store }).bucket);
  return {
    here: here!,
    there: there!,
    whileAsked: (act: () => Promise<void>) => {
      const draw = vi.spyOn(store, "draw");
      draw.mockImplementationOnce(async (request) => {
        const reply = await draw(request);
        await act();
        await simulateLatency(3);
        return reply;
      });
    },
    close: () => Promise.all([here!.close(), there!.close(), advance(2_000)]),
  };
}

describe("a resume that crosses an answer", () => {
  it.each([{}, { key: "key 0" }])(
    "is not outdone by a try that was refused before: %j",
    async (which) => {
      const { here, there, whileAsked, close } = open(PER_KEY);
      await here.tryDraw({ key: "warm" });
      await there.pause({ ...which, forMs: 600_000 });
      whileAsked(() => there.resume(which));
      const trying = here.tryDraw({ key: "key 0" });
      await advance(10);

      const again = here.tryDraw({ key: "key 0" });
      await advance(10);

      expect([(await trying).allowed, (await again).allowed]).toEqual([false, true]);
      await close();
    },
  );

  it("lets all keys go that wait, and not one after the other", async () => {
    const { here, there, whileAsked, close } = open(PER_KEY);
    const gone: string[] = [];
    await there.pause({ forMs: 600_000 });
    whileAsked(() => there.resume());
    for (const key of KEYS.slice(0, 12)) void here.draw({ key }).then(() => gone.push(key));
    await advance(100);

    expect(gone).toHaveLength(12);
    await close();
  });
});

describe("a resume whose notification does not reach a replica", () => {
  /** A store that tells nobody of changes from some time on. */
  function deafStore() {
    const store = createMemoryStore();
    let isDeaf = false;
    const deafly: Store["listen"] = (asker, wake: Wake) =>
      store.listen(asker, (...told) => {
        if (!isDeaf) wake(...told);
      });
    return { store: { ...store, listen: deafly }, deafen: () => void (isDeaf = true) };
  }

  it("of the bucket, lets all keys go with the next look-in", async () => {
    const { store, deafen } = deafStore();
    const { here, there, close } = open(PER_KEY, store);
    const gone: string[] = [];
    await there.pause({ forMs: 600_000 });
    for (const key of KEYS) void here.draw({ key }).then(() => gone.push(key));
    await advance(1_000);
    deafen();

    await there.resume();
    await advance(1_000);

    expect(gone).toHaveLength(KEYS.length);
    await close();
  });

  it("of one key among others, lets it go with one of the next", async () => {
    const { store, deafen } = deafStore();
    const { here, there, close } = open(PER_KEY, store);
    const gone: string[] = [];
    for (const key of KEYS) await there.pause({ key, forMs: 600_000 });
    for (const key of KEYS)
      here.draw({ key }).then(
        () => gone.push(key),
        () => undefined,
      );
    await advance(1_000);
    deafen();

    await there.resume({ key: "key 17" });
    await advance(2_500);

    expect(gone).toEqual(["key 17"]);
    await close();
  });
});

describe("a pause of a key in memory", () => {
  it("is kept while nothing is drawn from its bucket", async () => {
    const store = createMemoryStore();
    const { bucket } = createTestBucket(PER_KEY, { store });
    await bucket.pause({ key: "acme" });

    await advance(2 * 3_600_000);
    await createTestBucket({ rate: "1/s" }, { store, name: "other" }).bucket.draw();

    expect(await bucket.peek({ key: "acme" })).toMatchObject({ pausedForMs: Infinity });
    await bucket.close();
  });
});
