import type { ChildPool, ParentCommand as Command } from "bullmq";
import { reasonOf } from "../core/describe-value.ts";
import type { JobContext } from "./handler.ts";
import { HandlerTimeoutError } from "./job-errors.ts";
import type { Job } from "./job.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import type { ChildAnswer, ChildAttempt, SlotMessage } from "./sandbox-protocol.ts";

/** A process of BullMQ's pool. */
type Child = Awaited<ReturnType<ChildPool["retain"]>>;

type Message =
  | { readonly cmd: Command; readonly value?: unknown; readonly err?: unknown }
  | SlotMessage;

/**
 * Has a child process do a job; resolves with what came of it.
 * Rejects when the process is of no use any more: it has ended, or its handler was out of time.
 */
export function runInChild(
  child: Child,
  { job, context }: { readonly job: Job<unknown>; readonly context: JobContext },
): Promise<ChildAnswer> {
  const { signal } = context;
  const { ChildCommand, ParentCommand } = loadBullmq();
  return new Promise((resolve, reject) => {
    function settle(outcome: () => void): void {
      child.off("message", hear).off("exit", exited);
      signal.removeEventListener("abort", cancel);
      outcome();
    }

    function hear(given: unknown): void {
      // The handler, or what it imports, may send messages to others: "ready", for one.
      if (!isMessage(given)) return;
      if ("sluice" in given) return tellSlot(given, context);
      const { cmd, value, err } = given;
      if (cmd === ParentCommand.Completed) settle(() => resolve(value as ChildAnswer));
      else if (cmd === ParentCommand.Log) void context.log(String(value));
      else if (cmd === ParentCommand.Progress) void context.progress(value as object);
      // What a handler throws is an answer; this is a process that has met an error outside of it.
      else if (cmd === ParentCommand.Failed || cmd === ParentCommand.Error)
        settle(() =>
          reject(Object.assign(new Error("The handler's process failed"), value ?? err)),
        );
    }

    function exited(code: number | null, by: string | null): void {
      const how = by === null ? `with exit code ${code}` : `by ${by}`;
      settle(() => reject(new Error(`The handler's process ended ${how}`)));
    }

    function cancel(): void {
      const { reason } = signal;
      if (reason instanceof HandlerTimeoutError) return settle(() => reject(reason));
      send({ cmd: ChildCommand.Cancel, value: reasonOf(reason) });
    }

    function send(message: unknown): void {
      child.send(message).catch((error: unknown) => settle(() => reject(error as Error)));
    }

    child.on("message", hear).on("exit", exited);
    send({ cmd: ChildCommand.Start, job: startOf(job, context) });
    if (signal.aborted) cancel();
    else signal.addEventListener("abort", cancel, { once: true });
  });
}

function startOf(
  { data, ...facts }: Job<unknown>,
  { attempt, slot }: JobContext,
): { readonly data: string; readonly sluice: ChildAttempt } {
  const { bucket, key, atMs, waitedMs, generation, hasLease } = slot;
  const drawn = { bucket, key, atMs, waitedMs, generation, hasLease };
  return { data: JSON.stringify(data), sluice: { job: facts, attempt, slot: drawn } };
}

function isMessage(given: unknown): given is Message {
  return typeof given === "object" && given !== null && ("cmd" in given || "sluice" in given);
}

function tellSlot(message: SlotMessage, { slot, log }: JobContext): void {
  if (message.sluice === "release") return slot.release();
  if (message.sluice !== "settle") return;
  slot.settle(message.cost).catch((error: unknown) => log(`settle() failed: ${reasonOf(error)}`));
}
