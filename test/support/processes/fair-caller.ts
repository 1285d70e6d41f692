/** Calls a downstream for tenants through one door: a function, a queue, the HTTP service or its proxy. */
import { createSluice } from "sluice";
import { createServer } from "sluice/server";
import type { FairCallerSettings, FairOrder } from "../draws/fair-callers.ts";

const settings = JSON.parse(process.argv[2]!) as FairCallerSettings;
const { redis, prefix, url, policy, door } = settings;
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("downstream", policy);
const queue = sluice.queue<FairOrder>("jobs", { bucket });
const forward = { up: { to: url, bucket: "downstream", key: { header: "x-key" } } } as const;
const server = await createServer(sluice, {
  port: 0,
  insecureLocal: true,
  logger: false,
  ...(door === "forward" && { forward }),
});
const service = (await server.listen()).url;

async function post(to: string, { headers = {}, body }: { headers?: object; body?: object }) {
  const type = body === undefined ? {} : { "content-type": "application/json" };
  const text = body === undefined ? null : JSON.stringify(body);
  const response = await fetch(to, {
    method: "POST",
    headers: { ...type, ...headers },
    body: text,
  });
  const read = await response.text();
  if (response.status >= 400) throw new Error(`${to}: ${response.status} ${read}`);
  return read;
}

function headersOf({ key, cost, calledAtMs }: FairOrder): Record<string, string> {
  const facts = { "x-key": key, "x-cost": String(cost), "x-called-ms": String(calledAtMs) };
  return { ...facts, "x-door": door };
}

const callDownstream = (order: FairOrder) => post(url, { headers: headersOf(order) });

const callers = {
  inline: bucket.throttled(callDownstream, { key: ({ key }) => key, cost: ({ cost }) => cost }),
  async http(order: FairOrder) {
    const { key, cost } = order;
    const body = { key, cost, holdMs: 10_000 };
    const text = await post(`${service}/v1/buckets/downstream/draw`, { body });
    const { slot } = JSON.parse(text) as { readonly slot: { readonly id?: string } };
    await callDownstream(order);
    // Only the slot of a call that holds a lease has an id.
    if (slot.id !== undefined) await post(`${service}/v1/slots/${slot.id}/release`, { body: {} });
  },
  forward: (order: FairOrder) => post(`${service}/up/`, { headers: headersOf(order) }),
  jobs: (order: FairOrder) => queue.enqueue(order, { key: order.key, cost: order.cost }),
} as const;

if (door === "jobs") {
  sluice.worker(queue, ({ data }) => callDownstream(data), { concurrency: 200, lockMs: 30_000 });
}

async function follow(order: FairOrder): Promise<void> {
  const { key, cost, count, isLoop } = order;
  const orders = Array.from({ length: count }, () => ({ ...order, calledAtMs: Date.now() }));
  if (door === "jobs" && count > 1) {
    await queue.enqueueMany(orders, { key, cost });
    return;
  }
  await Promise.all(
    orders.map(async (each) => {
      do await callers[door]({ ...each, calledAtMs: Date.now() });
      while (isLoop);
    }),
  );
}

process.on("message", (text: string) => {
  for (const order of JSON.parse(text) as readonly FairOrder[]) {
    follow(order).catch((error: unknown) => process.send?.(`failed: ${String(error)}`));
  }
});
process.send?.("ready");
