import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { StoreUnavailableError } from "sluice";
import type { Webhooks } from "sluice/webhooks";

const TENANTS = 10;
const SENT_AT_ONCE = 20;

/** What is broken, and when. */
export interface DeathsPlan {
  /** The producer. */
  readonly hooks: Webhooks;
  readonly messages: number;
  /** How often the sender is killed, at even parts of the way. */
  readonly deaths: number;
  readonly startSender: () => { kill(): Promise<unknown> };
  /** Kills Redis, and starts it again with what its log has; in the middle. */
  readonly restartRedis: () => Promise<void>;
  readonly waitUntil: (condition: () => boolean | Promise<boolean>, what: string) => Promise<void>;
}

export interface DeathsFigures {
  /** Messages that no receiver got. */
  readonly lost: number;
  /** Deliveries beyond the first of each message. */
  readonly doubles: number;
  readonly failed: number;
}

/** Sends messages to ten tenants while their sender is killed again and again, and Redis once; counts what they got. */
export async function sendThroughDeaths(plan: DeathsPlan): Promise<DeathsFigures> {
  const { hooks, messages, deaths, startSender, restartRedis, waitUntil } = plan;
  const received = new Map<string, number>();
  const server = createServer((request, response) => {
    const id = String(request.headers["webhook-id"]);
    received.set(id, (received.get(id) ?? 0) + 1);
    request.resume();
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  for (let tenant = 0; tenant < TENANTS; tenant++) {
    const name = { tenant: `tenant-${tenant}`, id: "a" };
    await hooks.endpoints.put({ ...name, url: `http://127.0.0.1:${port}/${tenant}` });
  }

  let sender = startSender();
  const sending = sendAll(hooks, messages);
  const middle = Math.ceil(deaths / 2);
  for (let death = 1; death <= deaths; death++) {
    const reached = Math.floor((messages * death) / (deaths + 1));
    await waitUntil(() => received.size >= reached, `${reached} messages have arrived`);
    await sender.kill();
    sender = startSender();
    if (death === middle) await restartRedis();
  }
  await sending;
  await waitUntil(() => received.size === messages, "all messages have arrived");
  await waitUntil(async () => {
    const { waiting, active, delayed } = await hooks.queue.counts();
    return waiting + active + delayed === 0;
  }, "nothing waits or runs");
  const { failed } = await hooks.queue.counts();
  await sender.kill();
  server.closeAllConnections();
  server.close();
  const deliveries = [...received.values()].reduce((sum, count) => sum + count, 0);
  return { lost: messages - received.size, doubles: deliveries - received.size, failed };
}

async function sendAll(hooks: Webhooks, messages: number): Promise<void> {
  let next = 0;
  async function sendSome(): Promise<void> {
    while (next < messages) {
      const number = next;
      next += 1;
      await sendSurely(hooks, number);
    }
  }
  await Promise.all(Array.from({ length: SENT_AT_ONCE }, sendSome));
}

/** Sends it again with its id while Redis is away, as the documentation says. */
async function sendSurely(hooks: Webhooks, number: number): Promise<void> {
  const tenant = `tenant-${number % TENANTS}`;
  const message = { tenant, type: "note.made", data: number, id: `m-${number}` };
  for (;;) {
    try {
      await hooks.send(message);
      return;
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
    }
  }
}
