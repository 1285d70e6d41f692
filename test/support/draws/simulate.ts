import { LONGEST_ASK_GAP_US } from "../../../src/core/store.ts";
import { slotsOf, type TestReplica, type Wanted } from "./test-replica.ts";
import type { PinnedStore } from "./store-kinds.ts";

/** What each replica got: its slots, in µs. */
export type Grants = readonly (readonly number[])[];

/** The calls of one kind that wait in one process: for each that leaves, another comes. */
class Backlog {
  /** Since when each waits, in µs; the slots of those that are about to leave. */
  readonly #waiting: number[];
  #held: number[] = [];

  constructor(size: number, nowUs: number) {
    this.#waiting = Array.from({ length: size }, () => nowUs);
  }

  slotRequest(nowUs: number): Required<Pick<Wanted, "wanted" | "sincesUs">> {
    this.#waiting.push(...this.#held.filter((slotUs) => slotUs <= nowUs).sort((a, b) => a - b));
    this.#held = this.#held.filter((slotUs) => slotUs > nowUs);
    const [first = nowUs, second = first] = this.#waiting;
    const sincesUs = [first, second, this.#waiting.at(-1) ?? first] as const;
    return { wanted: Math.max(1, this.#waiting.length), sincesUs };
  }

  take(slotsUs: readonly number[]): void {
    this.#waiting.splice(0, slotsUs.length);
    this.#held.push(...slotsUs);
  }
}

/**
 * Lets replicas with an endless backlog draw for a while of simulated time: each
 * comes back when its turn comes, and asks for as many slots as it lacks.
 */
export async function simulate(
  { clock }: PinnedStore,
  replicas: readonly TestReplica[],
  { forMs, backlog }: { forMs: number; backlog: number },
): Promise<Grants> {
  const endUs = clock.nowUs() + forMs * 1_000;
  const grants: number[][] = replicas.map(() => []);
  const nextUs = replicas.map(() => clock.nowUs());
  const backlogs = replicas.map(() => new Backlog(backlog, clock.nowUs()));
  for (;;) {
    const first = nextUs.indexOf(Math.min(...nextUs));
    if (nextUs[first]! > endUs) return grants;
    clock.set(Math.max(clock.nowUs(), nextUs[first]!));
    const reply = await replicas[first]!.drawAll([backlogs[first]!.slotRequest(clock.nowUs())]);
    grants[first]!.push(...slotsOf(reply));
    backlogs[first]!.take(slotsOf(reply));
    const waitUs = reply.position.turnUs === 0 ? 1_000 : reply.position.turnUs - reply.nowUs;
    nextUs[first] = clock.nowUs() + Math.min(waitUs, LONGEST_ASK_GAP_US);
  }
}

/** Calls that wait in one process without end: `wanted` of each kind at a time. */
export interface Party {
  readonly replica: TestReplica;
  readonly slotRequests: readonly Wanted[];
  /** As a pacer does; otherwise, in the order of the slot requests. */
  readonly asksOldestFirst?: boolean;
}

/** A slot that was granted to slot request number `slot request` of party number `by`. */
export interface Grant {
  readonly slotUs: number;
  readonly by: number;
  readonly slotRequest: number;
}

/** As `simulate`, for replicas whose calls have keys, costs and priorities; each question comes later than it is due. */
export async function simulateParties(
  { clock }: PinnedStore,
  parties: readonly Party[],
  forMs: number,
  lateUs: () => number = () => 0,
): Promise<readonly Grant[]> {
  const endUs = clock.nowUs() + forMs * 1_000;
  const grants: Grant[] = [];
  const nextUs = parties.map(() => clock.nowUs());
  const backlogs = parties.map(({ slotRequests }) =>
    slotRequests.map(({ wanted }) => new Backlog(wanted, clock.nowUs())),
  );
  for (;;) {
    const by = nextUs.indexOf(Math.min(...nextUs));
    if (nextUs[by]! > endUs) return grants;
    clock.set(Math.max(clock.nowUs(), nextUs[by]!));
    const { replica, slotRequests } = parties[by]!;
    const asked = slotRequests.map((slotRequest, index) => ({
      ...slotRequest,
      ...backlogs[by]![index]!.slotRequest(clock.nowUs()),
      index,
    }));
    if (parties[by]!.asksOldestFirst === true) {
      asked.sort((a, b) => a.sincesUs[0] - b.sincesUs[0]);
    }
    const reply = await replica.drawAll(asked);
    for (const [at, { index: slotRequest }] of asked.entries()) {
      for (const slotUs of slotsOf(reply, at)) grants.push({ slotUs, by, slotRequest });
      backlogs[by]![slotRequest]!.take(slotsOf(reply, at));
    }
    const named = [reply.position.turnUs, ...reply.granted.map(({ notBeforeUs }) => notBeforeUs)];
    const due = named.filter((us) => us > 0);
    const dueUs = due.length === 0 ? reply.nowUs + 1_000 : Math.min(...due);
    const nextDueUs = Math.max(
      clock.nowUs() + 1,
      Math.min(dueUs - reply.nowUs + clock.nowUs(), clock.nowUs() + LONGEST_ASK_GAP_US),
    );
    nextUs[by] = nextDueUs + lateUs();
  }
}

/** Jain's index: 1 when all got the same, 1/n when one got all. */
export function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return sum ** 2 / (counts.length * squares);
}
