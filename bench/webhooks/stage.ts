import { fork, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { createSluice, type Sluice } from "sluice";
import { createWebhooks, type Webhooks, type WebhooksOptions } from "sluice/webhooks";
import type { Arrival, FromReceiver, SenderSetup, ToReceiver } from "./messages.ts";

const QUIET = { warn: () => undefined, error: console.error };

/** Options that let a sender reach receivers on this machine. */
export const LOCAL: WebhooksOptions = {
  keys: `k1:${randomBytes(32).toString("base64")}`,
  http: true,
  allow: ["127.0.0.0/8"],
};

export interface Producer {
  readonly hooks: Webhooks;
  readonly close: () => Promise<void>;
}

/** The functions of a built package that a producer needs. */
export interface ProducerBuild {
  readonly createSluice: typeof createSluice;
  readonly createWebhooks: typeof createWebhooks;
}

export function openProducer(
  redisUrl: string,
  options: WebhooksOptions = {},
  build: ProducerBuild = { createSluice, createWebhooks },
): Producer {
  const sluice: Sluice = build.createSluice({ redis: redisUrl, logger: QUIET });
  return {
    hooks: build.createWebhooks(sluice, { ...LOCAL, ...options }),
    close: () => sluice.close(),
  };
}

/** A process that receives webhooks. */
export interface Receiver {
  readonly url: string;
  /** Clears all arrivals. Resolves with the time from the first to the last of this many arrivals. */
  expect(count: number): Promise<number>;
  report(): Promise<{ readonly arrivals: readonly Arrival[]; readonly cpuUs: number }>;
  end(): Promise<void>;
}

export async function startReceiver(): Promise<Receiver> {
  const child = fork(fileOf("receiver-process.ts"), { serialization: "advanced" });
  const { url } = await messageOf(child, "listening");
  const tell = (message: ToReceiver): void => void child.send(message);
  return {
    url,
    async expect(count) {
      tell({ kind: "expect", count });
      return (await messageOf(child, "all")).tookMs;
    },
    async report() {
      const answer = messageOf(child, "arrivals");
      tell({ kind: "report" });
      return answer;
    },
    async end() {
      const ended = once(child, "exit");
      child.disconnect();
      await ended;
    },
  };
}

/** A process that sends webhooks. */
export interface SenderProcess {
  readonly started: Promise<unknown>;
  /** Closes the process cleanly. Resolves with the CPU time that it has used. */
  end(): Promise<number>;
  kill(): Promise<void>;
}

export function startSender(setup: SenderSetup): SenderProcess {
  const child = fork(fileOf("sender-process.ts"), [JSON.stringify(setup)]);
  const ended = once(child, "exit");
  return {
    started: once(child, "message"),
    async end() {
      const answer = once(child, "message");
      child.send("end");
      const [{ cpuUs }] = (await answer) as [{ cpuUs: number }];
      await ended;
      return cpuUs;
    },
    async kill() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

const WARM_UP_CALLS = 200;

/** Waits until these senders run, and lets them send some webhooks that do not count. */
export async function warmUp(
  { hooks }: Producer,
  receiver: Receiver,
  senders: readonly SenderProcess[],
): Promise<void> {
  const all = receiver.expect(WARM_UP_CALLS);
  await hooks.endpoints.put({ tenant: "warm-up", id: "a", url: `${receiver.url}/ok/warm-up` });
  await Promise.all(senders.map(({ started }) => started));
  for (let sent = 0; sent < WARM_UP_CALLS; sent++) {
    await hooks.send({ tenant: "warm-up", type: "a.b", data: sent });
  }
  await all;
}

function fileOf(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

async function messageOf<Kind extends FromReceiver["kind"]>(
  child: ChildProcess,
  kind: Kind,
): Promise<Extract<FromReceiver, { kind: Kind }>> {
  return new Promise((resolve) => {
    const onMessage = (message: unknown): void => {
      const told = message as FromReceiver;
      if (told.kind !== kind) return;
      child.off("message", onMessage);
      resolve(told as Extract<FromReceiver, { kind: Kind }>);
    };
    child.on("message", onMessage);
  });
}
