import { inject } from "vitest";
import type { Child, Children } from "../children/child.ts";
import { waitUntil } from "../async/wait-until.ts";
import type { MemberMessage, MemberRequest, MemberSettings } from "../processes/queue-member.ts";

export interface MemberOptions extends Omit<MemberSettings, "redis" | "bucket"> {
  readonly bucket?: MemberSettings["bucket"];
  readonly redis?: string;
  /** How wrong the process's wall clock is. */
  readonly shiftMs?: number;
}

type Attempt = Extract<MemberMessage, { readonly attempt: number }>;

/** A process with a queue. */
export interface QueueMember extends Pick<Child, "signal"> {
  /** The attempts that began there, in this order. */
  readonly attempts: readonly Attempt[];
  /** Calls a method of its queue; of its bucket, as `bucket.pause`; or of a job, by its id, as `job.eta`. */
  call<Answer>(method: string, ...given: readonly unknown[]): Promise<Answer>;
}

/** Starts a process with a queue, whose wall clock may be wrong; resolves when it is at work. */
export async function startMember(
  processes: Children,
  { bucket = { rate: "1000/s" }, redis = inject("redisUrl"), shiftMs = 0, ...given }: MemberOptions,
): Promise<QueueMember> {
  const settings: MemberSettings = { ...given, bucket, redis };
  const env = { CLOCK_SHIFT_MS: String(shiftMs) };
  const options = { preload: "shifted-clock.ts", env };
  const child = processes.start("queue-member.ts", [JSON.stringify(settings)], options);
  const messages = child.messages as readonly (MemberMessage | "ready")[];
  await waitUntil(() => messages.includes("ready"), "a process is at work");
  let calls = 0;

  return {
    signal: (name) => child.signal(name),
    get attempts() {
      return messages.filter((message) => typeof message === "object" && "attempt" in message);
    },
    async call<Answer>(method: string, ...args: readonly unknown[]) {
      const number = (calls += 1);
      const request: MemberRequest = { number, call: method, given: args };
      child.send(JSON.stringify(request));
      const find = () =>
        messages.find(
          (message) =>
            typeof message === "object" && "number" in message && message.number === number,
        );
      await waitUntil(() => find() !== undefined, `${method} is answered`);
      const reply = find() as Exclude<MemberMessage, Attempt>;
      if ("refusal" in reply) throw new Error(reply.refusal);
      return reply.answer as Answer;
    },
  };
}
