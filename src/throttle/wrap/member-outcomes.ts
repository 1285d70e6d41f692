/**
 * Reads what the results of a pool's calls say about their members. A member whose account cannot be used gets no calls
 * for a time. A call that its member cannot take may go to another member.
 */
import { types } from "node:util";
import { memberKey } from "../../core/key-path.ts";
import { reasonOf } from "../../core/describe.ts";
import type { OwnedBucket } from "../bucket.ts";
import type { ReportedOutcome } from "../feedback/feedback.ts";
import { isUnconnected, isUnreachable } from "../outage/unreachable.ts";

/** How long the member gets no calls. Then calls try it again. */
const ACCOUNT_MS = 60_000;
/** The statuses of a request without valid credentials, and of an account that has not paid. */
const STATUSES: ReadonlySet<number | undefined> = new Set([401, 402]);

/** Which members the calls of a bucket use. */
export interface UsedMembers {
  /** True for members that these calls may use. */
  readonly includes: (name: string) => boolean;
  /** True for members whose credentials this process has. */
  readonly hasAccount: (name: string) => boolean;
}

/**
 * Returns the bucket of a pool for calls of its members. A member whose account cannot be used gets no calls for a
 * minute, in all replicas, while another member takes calls. Outcomes have `takeover` if another member may take the
 * call.
 */
export function watchMembers(bucket: OwnedBucket, used: UsedMembers): OwnedBucket {
  const { name: pool, logger } = bucket;
  const reading = new Set<string>();
  /** Members are taken out one after the other, so that the last one stays in. */
  let last: Promise<void> = Promise.resolve();

  /** Waits until the member is out, because the caller may call again at once. */
  async function look(outcome: ReportedOutcome, member: string): Promise<void> {
    if (!reading.has(member)) {
      reading.add(member);
      last = last
        .then(() => takeOut(member, outcome))
        .catch((error: unknown) =>
          logger.warn(
            { bucket: pool, member, reason: reasonOf(error) },
            "Could not take out a member whose account cannot be used; it still gets calls.",
          ),
        )
        .finally(() => reading.delete(member));
    }
    await last;
  }

  async function takeOut(member: string, { answer }: ReportedOutcome): Promise<void> {
    const members = await bucket.members();
    const others = members.filter((each) => each.name !== member && takesCalls(each));
    const isOut = members.some((each) => each.name === member && !takesCalls(each));
    if (!others.some(({ name }) => used.hasAccount(name)) || isOut) return;
    bucket.coolDown(memberKey(member), ACCOUNT_MS, "account");
    await bucket.outcomesReported();
    const reason = answer.status === undefined ? "its credit is spent" : `status ${answer.status}`;
    logger.warn(
      { bucket: pool, member, reason },
      `The account of member ${JSON.stringify(member)} of pool "${pool}" cannot be used (${reason}). ` +
        "The other members take its calls for a minute. Check its credentials and its balance.",
    );
  }

  /** True if the member gets no calls now, and another member does. */
  async function isReplaced(member: string): Promise<boolean> {
    await bucket.outcomesReported();
    const members = await bucket.members();
    const takers = members.filter((each) => used.includes(each.name) && takesCalls(each));
    return takers.length > 0 && takers.every(({ name }) => name !== member);
  }

  async function withTakeover(
    outcome: ReportedOutcome,
    { result, member }: { readonly result: unknown; readonly member: string },
  ): Promise<ReportedOutcome> {
    const isAboutAccount = used.hasAccount(member) && isOfAccount(outcome);
    if (isAboutAccount) await look(outcome, member);
    else if (!isUnreachable(result)) return outcome;
    const isReplacedNow = await isReplaced(member).catch(() => false);
    if (!isReplacedNow) return outcome;
    const isSafe = isAboutAccount || isUnconnected(result);
    return { ...outcome, takeover: isSafe ? "safe" : "if idempotent" };
  }

  return Object.assign(Object.create(bucket) as OwnedBucket, {
    reportOutcome(...[result, slot, cost, read]: Parameters<OwnedBucket["reportOutcome"]>) {
      const reported = bucket.reportOutcome(result, slot, cost, read);
      const { member } = slot;
      if (member === undefined) return reported;
      const check = (outcome: ReportedOutcome): ReportedOutcome | Promise<ReportedOutcome> =>
        mayBeFailed(result, outcome) ? withTakeover(outcome, { result, member }) : outcome;
      return reported instanceof Promise ? reported.then(check) : check(reported);
    },
  });
}

type Member = Awaited<ReturnType<OwnedBucket["members"]>>[number];

function takesCalls({ drained, coolingForMs, unreachableForMs }: Member): boolean {
  return !drained && coolingForMs === 0 && unreachableForMs === 0;
}

/** A quick check, because most calls succeed. */
function mayBeFailed(result: unknown, { heard, answer }: ReportedOutcome): boolean {
  return answer.refused || (heard.status ?? 0) >= 400 || types.isNativeError(result);
}

/** True for a response to missing or invalid credentials, and for one of an account without credit. */
function isOfAccount({ answer }: ReportedOutcome): boolean {
  const { status, refused, lasts, afterMs } = answer;
  if (!refused) return STATUSES.has(status);
  return lasts && afterMs === undefined;
}
