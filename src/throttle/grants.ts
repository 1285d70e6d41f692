import type { Drawn, Granted } from "../core/store.ts";
import { keyLookInAtMs } from "./ask-times.ts";
import type { Books } from "./books.ts";
import type { Group } from "./group.ts";
import { slotsOf, type HeldSlot } from "./held-slots.ts";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { LinePlaces } from "./line-places.ts";
import type { Received } from "./reply-times.ts";
import type { Returns } from "./returns.ts";

/** What a reply grants goes into the books; what comes of it too late goes back. */
export interface Grants {
  /** Takes in what was granted to each group that was asked for. */
  take(reply: Drawn, asked: Asked, received: Received): void;
  /** Gives back what slots took that were not used in time. */
  readonly refund: (group: Group, slots: readonly HeldSlot[]) => void;
}

export interface Asked {
  /** In the order of the wishes. */
  readonly groups: readonly Group[];
  /** The number of the first lease that the draw could give. */
  readonly firstLease: number;
}

export interface GrantsOptions {
  readonly books: Books;
  readonly linePlaces: LinePlaces;
  readonly leases: LeaseKeeper;
  readonly returns: Returns;
  /** A key may be asked about again. */
  readonly onRefunded: () => void;
}

/** A refund takes a round trip; one that is lost is not waited for. */
const REFUND_MS = 100;

export function createGrants(options: GrantsOptions): Grants {
  const { books, linePlaces, leases, returns, onRefunded } = options;
  const { waitingIn } = books;

  /** When the key of these calls is to be asked about again; 0: at any time. */
  function untilMs({ notBeforeUs }: Granted, { arrivedMs, offsetMs }: Received): number {
    if (notBeforeUs === 0) return 0;
    if (notBeforeUs < Infinity) return notBeforeUs / 1_000 + offsetMs;
    return keyLookInAtMs(arrivedMs, waitingIn.heldBack.size);
  }

  function take(reply: Drawn, asked: Asked, received: Received): void {
    const { arrivedMs, offsetMs, isStale } = received;
    let lease = asked.firstLease;
    for (const [index, granted] of reply.granted.entries()) {
      const group = asked.groups[index]!;
      const { hasLeases } = group.conditions;
      const firstLease = hasLeases ? lease : 0;
      if (hasLeases) lease += granted.slotsUs.length;
      if (granted.refusal !== undefined) books.refuse(group, granted.refusal);
      if (!isStale) books.hold(group, granted, { firstLease, sentAtMs: reply.sentAtMs, offsetMs });
      waitingIn.holdBack(group, group.hasNews ? 0 : untilMs(granted, received));
      group.bindsAt = granted.bindsAt;
      linePlaces.keep(group.key, granted.place);
      if (group.notBeforeMs > arrivedMs) {
        books.sendAway(group, group.notBeforeMs - arrivedMs);
        books.sendBack(group);
      }
      if (isStale) waste(group, slotsOf(granted, firstLease, offsetMs));
    }
  }

  /** Slots whose time has passed: what they took of a quota is given back, their time is gone. */
  function waste(group: Group, slots: readonly HeldSlot[]): void {
    leases.releaseAll(slots, group);
    refund(group, slots);
  }

  /** A key is not asked about before its own limits have back what the slots took, or it would be told to wait for that. */
  function refund(group: Group, slots: readonly HeldSlot[]): void {
    const refunded = returns.refund(group, slots);
    if (group.conditions.keyLimits.length === 0) return;
    waitingIn.holdBack(group, performance.now() + REFUND_MS);
    void refunded.then(() => {
      waitingIn.holdBack(group, 0);
      onRefunded();
    });
  }

  return { take, refund };
}
