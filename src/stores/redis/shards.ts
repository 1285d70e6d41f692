/**
 * Spreads buckets and queues over several independent servers, and combines the servers' stores
 * into one store.
 */
import { createHash } from "node:crypto";
import { LRUCache } from "lru-cache";
import { areNewer, settingOf, type RulesAnswer } from "../../core/stores/insight/rules.ts";
import { newestFirst, type ChangesPage } from "../../core/stores/insight/changes.ts";
import type { BucketLook, InsightStore } from "../../core/stores/insight/store.ts";
import type { Store } from "../../core/store.ts";

/**
 * A point on the hash ring. Its server stores the names whose hashes lie between the previous point
 * and this point.
 */
interface Point {
  readonly value: number;
  readonly url: string;
}

/**
 * The number of hashes per server. It is high enough that a fourth server takes about a quarter of
 * the names of three servers.
 */
const HASHES = 150;
/** The number of points per MD5 hash. Each point has 4 bytes. */
const POINTS_OF_HASH = 4;
/** The number of names whose servers are cached, because each draw looks up its server. */
const NAMES_REMEMBERED = 5_000;

/**
 * Returns a function that maps a name to the URL of its server. When a server is added or removed,
 * only that server's share of the names moves.
 *
 * It uses consistent hashing with ketama points, as in libmemcached. Never change how points are
 * computed: with other points, stored names would be looked up on the wrong servers.
 */
export function createShards(urls: readonly string[]): (name: string) => string {
  const ring = urls.flatMap(pointsOf).toSorted((a, b) => a.value - b.value);
  const servers = new LRUCache<string, string>({
    max: NAMES_REMEMBERED,
    memoMethod: (name) => (ring[firstFrom(ring, hashOf(name).readUInt32LE())] ?? ring[0]!).url,
  });
  return (name) => servers.memo(name);
}

/**
 * Returns the part of a URL that determines the server's place on the ring. The password is
 * excluded, so changing it moves no names.
 */
export function serverId(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${hostname}:${port === "" ? "6379" : port}${pathname === "/" ? "" : pathname}`;
}

/** Combines several stores into one. `storeOf` returns the store that contains a bucket. */
export function combineStores(stores: readonly Store[], storeOf: (bucket: string) => Store): Store {
  return {
    draw: (request) => storeOf(request.bucket).draw(request),
    giveBack: (request) => storeOf(request.bucket).giveBack(request),
    settle: (request) => storeOf(request.bucket).settle(request),
    noteSlot: (note, settling) => storeOf(note.bucket).noteSlot(note, settling),
    renew: (request) => storeOf(request.bucket).renew(request),
    release: (request) => storeOf(request.bucket).release(request),
    steer: (request) => storeOf(request.bucket).steer(request),
    peek: (request) => storeOf(request.bucket).peek(request),
    budgets: (request) => storeOf(request.bucket).budgets(request),
    keysWithBudgets: (bucket) => storeOf(bucket).keysWithBudgets(bucket),
    readWarnings: (request) => storeOf(request.bucket).readWarnings(request),
    learn: (request) => storeOf(request.bucket).learn(request),
    readOutages: (request) => storeOf(request.bucket).readOutages(request),
    noteOutage: (note) => storeOf(note.bucket).noteOutage(note),
    listen(replica, wake) {
      for (const store of stores) store.listen(replica, wake);
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()));
    },
  };
}

/**
 * A server's possible replies to a rules file. If servers disagree, the first one in this list
 * applies.
 */
const VERDICTS: readonly RulesAnswer["verdict"][] = ["older", "apply", "wait", "done"];

/**
 * Combines the fleet's state from all servers. Only one server stores the state of a given bucket
 * or queue.
 */
export function combineInsight(
  stores: readonly InsightStore[],
  storeOfName: (bucket: string) => InsightStore,
): InsightStore {
  // The rules for a queue's settings are stored on the queue's server.
  const storeOf = (name: string): InsightStore => storeOfName(settingOf(name)?.name ?? name);

  /**
   * Sends a request to all servers, and returns their replies and errors. Rejects if all servers
   * fail.
   */
  async function fromAll<T>(
    ask: (store: InsightStore) => Promise<T>,
  ): Promise<{ readonly answers: readonly T[]; readonly errors: readonly unknown[] }> {
    const settled = await Promise.allSettled(stores.map(ask));
    const answers = settled.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    const errors = settled.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    if (answers.length === 0) throw errors[0];
    return { answers, errors };
  }

  return {
    async report({ buckets, queues, workers, ...replica }) {
      const { answers, errors } = await fromAll((store) =>
        store.report({
          ...replica,
          buckets: buckets.filter(({ bucket }) => storeOf(bucket) === store),
          queues: queues.filter(({ name }) => storeOf(name) === store),
          workers: workers?.filter(({ queue }) => storeOf(queue) === store),
        }),
      );
      return {
        over: answers.flatMap(({ over }) => over),
        // The process counts as new if a server was unreachable, because that server may have no
        // data about it.
        isNew: errors.length > 0 || answers.some(({ isNew }) => isNew),
      };
    },
    async bucketNames(page) {
      const { answers, errors } = await fromAll((store) => store.bucketNames(page));
      const names = answers.flatMap((answer) => answer.names).toSorted();
      return { names: names.slice(0, page.limit), errors };
    },
    bucket: (name) => storeOf(name).bucket(name),
    declared: (bucket) => storeOf(bucket).declared(bucket),
    // The queue's name chooses the server, so all processes choose the same one.
    noteRequest: (request, keptMs) => storeOf(request.queue).noteRequest(request, keptMs),
    forgetRequest: (request) => storeOf(request.queue).forgetRequest(request),
    slotSecret: (own) => storeOf("slots").slotSecret(own),
    async offerRules(offer) {
      const { answers } = await fromAll((store) => store.offerRules(offer));
      const rank = ({ verdict }: RulesAnswer): number => VERDICTS.indexOf(verdict);
      return answers.toSorted((a, b) => rank(a) - rank(b))[0]!;
    },
    async rules() {
      const { answers } = await fromAll((store) => store.rules());
      const found = answers.filter((answer) => answer !== undefined);
      return found.toSorted((a, b) => (areNewer(a, b) ? -1 : 1))[0];
    },
    async noteRules({ policies, ...rules }) {
      const earlier = new Map<string, string | undefined>();
      const noting = stores.map(async (store) => {
        const own = policies.filter(([bucket]) => storeOf(bucket) === store);
        if (own.length === 0) return true;
        const texts = await store.noteRules({ ...rules, policies: own });
        for (const [at, [bucket]] of own.entries()) earlier.set(bucket, texts?.[at]);
        return texts !== undefined;
      });
      const areNoted = (await Promise.all(noting)).every(Boolean);
      return areNoted ? policies.map(([bucket]) => earlier.get(bucket)) : undefined;
    },
    async rulesApplied(rules, unreached = new Set()) {
      // The rules are not marked as applied on unreachable servers. These servers get the rules
      // when they are reachable again.
      const missed = new Set([...unreached].map(storeOf));
      await fromAll(async (store) => missed.has(store) || store.rulesApplied(rules));
    },
    byServer: (names) => stores.map((store) => names.filter((name) => storeOf(name) === store)),
    async ruledNames() {
      return (await fromAll((store) => store.ruledNames())).answers.flat();
    },
    async ruledOf(names) {
      const asking = names.map(async (name) => (await storeOf(name).ruledOf([name]))[0]);
      return Promise.all(asking);
    },
    async declaredOf(names) {
      const asking = stores.map(async (store) => {
        const own = names.filter((name) => storeOf(name) === store);
        const texts = own.length === 0 ? [] : await store.declaredOf(own);
        return own.map((name, at) => [name, texts[at]] as const);
      });
      const declared = new Map((await Promise.all(asking)).flat());
      return names.map((name) => declared.get(name));
    },
    async looks(names) {
      const looking = stores.map(async (store): Promise<[string, BucketLook][]> => {
        const own = names.filter((name) => storeOf(name) === store);
        try {
          return [...((await store.looks?.(own)) ?? [])];
        } catch (error) {
          return own.map((name) => [name, { error }]);
        }
      });
      return new Map((await Promise.all(looking)).flat());
    },
    async replicas() {
      const found = (await fromAll((store) => store.replicas())).answers.flat();
      return [...new Map(found.map((each) => [each.replica, each])).values()];
    },
    async queues(page) {
      const { answers, errors } = await fromAll((store) => store.queues(page));
      const queues = answers.flatMap((answer) => answer.queues);
      const byName = queues.toSorted((a, b) => (a.name < b.name ? -1 : 1));
      return { queues: byName.slice(0, page.limit), errors };
    },
    queue: (name) => storeOf(name).queue(name),
    async liveWorkers(queues) {
      const { answers } = await fromAll((store) =>
        store.liveWorkers(queues.filter((name) => storeOf(name) === store)),
      );
      return answers.flat();
    },
    // The id of the outbox chooses the server, so that all relays choose the same one.
    reportOutbox: (report) => storeOf(report.outbox).reportOutbox(report),
    async outboxes() {
      return (await fromAll((store) => store.outboxes())).answers.flat();
    },
    async workers() {
      return (await fromAll((store) => store.workers())).answers.flat();
    },
    history: (bucket, span) => storeOf(bucket).history(bucket, span),
    noteChange: (change) => storeOf(placeOf(change)).noteChange(change),
    amendChange: (change, fate) => storeOf(placeOf(change)).amendChange(change, fate),
    changes: (async (page: ChangesPage) => {
      const { bucket, queue, limit } = page;
      const place = bucket ?? queue;
      if (place !== undefined) return storeOf(place).changes(page);
      const { answers } = await fromAll((store) => store.changes(page));
      return newest(answers.flat(), limit);
    }) as InsightStore["changes"],
    settingsByHand: (queue) => storeOf(queue).settingsByHand(queue),
    forgetTenant: (of) => storeOf(of.queue).forgetTenant(of),
    confirmChange: (made) => storeOf(made.change.bucket).confirmChange(made),
    endOverride: (override) => storeOf(override.bucket).endOverride(override),
  };
}

function placeOf(
  of: { readonly bucket: string } | { readonly bucket?: undefined; readonly queue: string },
): string {
  return of.bucket ?? of.queue;
}

function newest<Item extends { readonly id: string }>(all: Item[], limit: number): Item[] {
  return all.toSorted((a, b) => newestFirst(a.id, b.id)).slice(0, limit);
}

function pointsOf(url: string): Point[] {
  const id = serverId(url);
  const hashes = Array.from({ length: HASHES }, (_, index) => hashOf(`${id}-${index}`));
  return hashes.flatMap((hash) =>
    Array.from({ length: POINTS_OF_HASH }, (_, part) => ({
      value: hash.readUInt32LE(part * 4),
      url,
    })),
  );
}

/**
 * Returns the index of the first point that is at least the value. Returns the ring's length if all
 * points are less.
 */
function firstFrom(ring: readonly Point[], value: number): number {
  let low = 0;
  let high = ring.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ring[middle]!.value < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function hashOf(text: string): Buffer {
  return createHash("md5").update(text).digest();
}
