/** A process with a limiter, or a group, of Bottleneck or of its drop-in. It does what its parent asks. */
import RealBottleneck from "bottleneck";
import Bottleneck from "sluice/bottleneck";

/** What such a process creates, as JSON. */
export interface MemberConfig {
  readonly library: "bottleneck" | "sluice";
  readonly kind: "limiter" | "group";
  readonly options: Bottleneck.ConstructorOptions;
}

/** One request to such a process, as JSON. */
export interface MemberRequest {
  readonly number: number;
  /** `start` a job by its name, `end` one or the oldest, list `events`, or call a method of the limiter or the group. */
  readonly method: string;
  readonly args: readonly unknown[];
  /** The limiter of the group on which the method is called. */
  readonly key?: string | undefined;
}

export interface MemberReply {
  readonly number: number;
  readonly value: unknown;
}

const EVENTS = ["empty", "idle", "depleted", "message", "dropped", "error"] as const;
/** Methods whose results no other process can receive. */
const RETURN_LIMITERS = new Set(["ready", "updateSettings", "disconnect"]);

const { library, kind, options } = JSON.parse(process.argv[2]!) as MemberConfig;
const Library =
  library === "sluice" ? Bottleneck : (RealBottleneck as unknown as typeof Bottleneck);
const group = kind === "group" ? new Library.Group(options) : undefined;
const single = kind === "limiter" ? listened(new Library(options)) : undefined;
const events: string[] = [];
const ends = new Map<string, () => void>();
group?.on("created", (limiter) => void listened(limiter));

function listened(limiter: Bottleneck): Bottleneck {
  for (const name of EVENTS) {
    limiter.on(name as "message", (value: unknown) => {
      events.push(name === "message" || name === "error" ? `${name} ${String(value)}` : name);
    });
  }
  return limiter;
}

function startJob(limiter: Bottleneck, id: string, weight: number): void {
  const run = (): Promise<void> => new Promise((resolve) => void ends.set(id, resolve));
  // The event "dropped" shows a job that was dropped.
  limiter.schedule({ id, weight }, run).catch(() => undefined);
}

function endJob(id = [...ends.keys()][0] ?? ""): void {
  ends.get(id)?.();
  ends.delete(id);
}

async function reply({ method, args, key }: MemberRequest): Promise<unknown> {
  if (method === "events") return events.splice(0);
  if (method === "end") return endJob(args[0] as string | undefined);
  const limiter = key === undefined ? single : group!.key(key);
  if (method === "start") return startJob(limiter!, args[0] as string, (args[1] as number) ?? 1);
  const target = (limiter ?? group) as unknown as Record<string, (...given: unknown[]) => unknown>;
  const value = await target[method]!(...args);
  return RETURN_LIMITERS.has(method) ? undefined : value;
}

process.on("message", (text: string) => {
  const request = JSON.parse(text) as MemberRequest;
  void reply(request).then(
    (value) => process.send?.({ number: request.number, value }),
    (error: unknown) =>
      process.send?.({ number: request.number, value: `error: ${String(error)}` }),
  );
});
await single?.ready();
process.send?.({ number: 0, value: "ready" });
