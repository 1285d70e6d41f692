import type { Store } from "../core/store.ts";

/** Several stores as one: each bucket lives in the one that its name tells. */
export function createShardedStore(
  stores: readonly Store[],
  storeOf: (bucket: string) => Store,
): Store {
  return {
    draw: (request) => storeOf(request.bucket).draw(request),
    giveBack: (request) => storeOf(request.bucket).giveBack(request),
    settle: (request) => storeOf(request.bucket).settle(request),
    renew: (request) => storeOf(request.bucket).renew(request),
    release: (request) => storeOf(request.bucket).release(request),
    steer: (request) => storeOf(request.bucket).steer(request),
    peek: (request) => storeOf(request.bucket).peek(request),
    listen(asker, wake) {
      for (const store of stores) store.listen(asker, wake);
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()));
    },
  };
}
