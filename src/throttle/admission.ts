import { ClosedError, LineFullError } from "../core/errors.ts";
import type { Priority } from "../core/options.ts";
import type { TryDecision } from "./bucket.ts";
import type { DrawOptions, TryOptions } from "./draw-options.ts";
import { createEntry } from "./entry.ts";
import type { Estimates } from "./estimates.ts";
import type { Group } from "./group.ts";
import type { Groups } from "./groups.ts";
import type { OwnedBucket } from "./owned-bucket.ts";
import type { Pacer } from "./pacer.ts";
import type { SecondLook } from "./second-look.ts";
import type { Slot } from "./slot.ts";
import type { TryDraws } from "./try-draws.ts";
import {
  TooFar,
  WaitingCall,
  type CallContext,
  type WaitOptions,
  type Waits,
} from "./waiting-call.ts";

/** How calls come in: into the line, or back at once. What is thrown for one is thrown before it waits. */
export interface Admission {
  /**
   * Waits for a slot.
   *
   * @throws {@link ClosedError} after `close()`.
   * @throws {@link LineFullError} when the line is full for calls of this priority.
   * @throws the signal's reason, when it is aborted already, and as {@link Groups.of} does.
   */
  draw(options: DrawOptions): Promise<Slot>;
  /** Waits as the call of a job: it is never shed, leaves when its key's time is too far off, and can be stopped by what is among `waits`. */
  readonly drawForJob: OwnedBucket["drawForJob"];
  /** @throws {@link ClosedError} after `close()`, and as {@link Groups.of} does. */
  tryDraw(options: TryOptions): Promise<TryDecision>;
  readonly check: OwnedBucket["checkDrawable"];
  /** Lets nobody in any more. */
  close(): void;
}

export interface AdmissionParts {
  readonly name: string;
  readonly maxWaiting: number;
  /** How many callers wait in this process. */
  readonly waiting: () => number;
  readonly groups: Groups;
  readonly pacer: Pacer;
  readonly tries: TryDraws;
  readonly estimates: Estimates;
  readonly lookAgain: SecondLook;
  /** @throws {@link InvalidOptionError} when a cost names a unit that nothing counts. */
  readonly assertUnits: (where: string, options: TryOptions) => void;
  /** Called when the first call comes. */
  readonly listen: (() => void) | undefined;
}

/** How full a line may be for each priority. */
const SHED_AT: Readonly<Record<Priority, number>> = {
  critical: 1,
  high: 0.9,
  normal: 0.8,
  low: 0.7,
};

export function createAdmission(parts: AdmissionParts): Admission {
  const { name, maxWaiting, groups, pacer, tries, estimates, assertUnits } = parts;
  let calls = 0;
  let isListening = false;
  let isClosed = false;

  const entry = createEntry(name, parts.lookAgain, assertOpen);
  const context: CallContext = {
    ...estimates,
    name,
    takeNumber: () => (calls += 1),
    leave: (call) => pacer.leave(call),
  };

  function assertOpen(): void {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    if (isListening) return;
    isListening = true;
    parts.listen?.();
  }

  /** As a line fills, it is kept for those who are more urgent. */
  function shed({ priority = "normal", key }: DrawOptions, group: Group): void {
    const waiting = parts.waiting();
    const most = maxWaiting * SHED_AT[priority];
    if (waiting < most) return;
    const retryAfterMs = Math.ceil((waiting - most + 1) * group.conditions.stepMs);
    throw new LineFullError({ bucket: name, key, waiting, priority, retryAfterMs });
  }

  function wait(options: DrawOptions, _waits?: Waits, sinceMs?: number): Promise<Slot> {
    options.signal?.throwIfAborted();
    assertUnits("draw()", options);
    const group = groups.of(options);
    shed(options, group);
    return new Promise((resolve, reject) => {
      pacer.wait(new WaitingCall(context, group, options, { resolve, reject }, sinceMs));
    });
  }

  function waitForJob(
    options: WaitOptions,
    waits?: Waits,
    sinceMs?: number,
  ): Promise<Slot | TooFar> {
    const group = groups.of(options);
    const roomInMs = group.notBeforeMs - performance.now();
    if (roomInMs > (options.patienceMs ?? Infinity)) return Promise.resolve(new TooFar(roomInMs));
    return new Promise((resolve, fail) => {
      const settling = {
        resolve,
        reject: (reason: unknown) => (reason instanceof TooFar ? resolve(reason) : fail(reason)),
        waits,
      };
      pacer.wait(new WaitingCall(context, group, options, settling, sinceMs));
    });
  }

  function tryNow(options: TryOptions): Promise<TryDecision> {
    assertUnits("tryDraw()", options);
    return tries.ask(options);
  }

  return {
    draw(options) {
      assertOpen();
      return entry.enter(wait, options);
    },
    drawForJob(options, waits) {
      assertOpen();
      // Its units were looked at as it was enqueued; what counted them then may be gone.
      return entry.enter(waitForJob, options, waits);
    },
    tryDraw(options) {
      assertOpen();
      return entry.enter(tryNow, options);
    },
    check(where, options) {
      const check = (): void => {
        assertUnits(where, options);
        groups.of(options);
      };
      try {
        check();
        return undefined;
      } catch (error) {
        return entry.afterLook(error, check);
      }
    },
    close() {
      isClosed = true;
    },
  };
}
