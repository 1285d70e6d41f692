/** Takes a member of a pool out for a time when its responses say that its account cannot be used. */
import { memberKey } from "../../core/key-path.ts";
import { reasonOf } from "../../core/describe.ts";
import type { OwnedBucket } from "../bucket.ts";
import type { ReportedOutcome } from "../feedback/feedback.ts";

/** How long the member gets no calls. Then calls try it again. */
const ACCOUNT_MS = 60_000;
/** The statuses of a request without valid credentials, and of an account that has not paid. */
const STATUSES: ReadonlySet<number | undefined> = new Set([401, 402]);

/**
 * Returns the bucket of a pool for calls whose credentials are those of their members. A member whose account cannot be
 * used gets no calls for a minute, in all replicas, while another member takes calls. `usesMember` returns true
 * for members whose credentials this process has.
 */
export function watchAccounts(
  bucket: OwnedBucket,
  usesMember: (name: string) => boolean,
): OwnedBucket {
  const { name: pool, logger } = bucket;
  const reading = new Set<string>();
  /** Members are taken out one after the other, so that the last one stays in. */
  let last: Promise<void> = Promise.resolve();

  /** Waits until the member is out, because the caller may call again at once. */
  async function look(outcome: ReportedOutcome, member: string): Promise<ReportedOutcome> {
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
    return outcome;
  }

  async function takeOut(member: string, { answer }: ReportedOutcome): Promise<void> {
    const members = await bucket.members();
    const isIn = ({ name, drained, coolingForMs, unreachableForMs }: (typeof members)[number]) =>
      usesMember(name) && !drained && coolingForMs === 0 && unreachableForMs === 0;
    const others = members.filter((each) => each.name !== member && isIn(each));
    const isOut = members.some((each) => each.name === member && !isIn(each));
    if (others.length === 0 || isOut) return;
    bucket.coolDown(memberKey(member), ACCOUNT_MS, "account");
    await bucket.outcomesReported();
    const reason = answer.status === undefined ? "its credit is spent" : `status ${answer.status}`;
    logger.warn(
      { bucket: pool, member, reason },
      `The account of member ${JSON.stringify(member)} of pool "${pool}" cannot be used (${reason}). ` +
        "The other members take its calls for a minute. Check its credentials and its balance.",
    );
  }

  return Object.assign(Object.create(bucket) as OwnedBucket, {
    reportOutcome(...[result, slot, cost, read]: Parameters<OwnedBucket["reportOutcome"]>) {
      const reported = bucket.reportOutcome(result, slot, cost, read);
      const { member } = slot;
      if (member === undefined || !usesMember(member)) return reported;
      const check = (outcome: ReportedOutcome): ReportedOutcome | Promise<ReportedOutcome> =>
        isOfAccount(outcome) ? look(outcome, member) : outcome;
      return reported instanceof Promise ? reported.then(check) : check(reported);
    },
  });
}

/** True for a response to missing or invalid credentials, and for one of an account without credit. */
function isOfAccount({ answer }: ReportedOutcome): boolean {
  const { status, refused, lasts, afterMs } = answer;
  if (!refused) return STATUSES.has(status);
  return lasts && afterMs === undefined;
}
