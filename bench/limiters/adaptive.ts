import { concurrency, createSluice } from "sluice";
import type { Contender, ReplicaSetup } from "./contender.ts";
import { createGradient2 } from "./gradient2.ts";
import { keepCalling } from "./keep-calling.ts";

const INITIAL = 20;

async function callDownstream({ url }: ReplicaSetup): Promise<void> {
  const response = await fetch(url!);
  await response.arrayBuffer();
}

/** One limit for all replicas, which adapts to the latency of all calls. */
export const sluiceAdaptive: Contender = {
  title: "Sluice, adaptive concurrency",
  async connect(setup) {
    const opened = createSluice({ redis: setup.redisUrl });
    const limits = [concurrency("auto", { initial: INITIAL })];
    const bucket = opened.bucket("bench", { limits });
    const { callers } = setup;
    const calling = keepCalling({
      callers,
      call: () => bucket.run(() => callDownstream(setup)),
    });
    return { ...calling, close: () => opened.close() };
  },
};

/** A limit in each replica, which adapts to the latency of the calls of that replica. */
export const gradient2: Contender = {
  title: "Gradient2 in each process",
  async connect(setup) {
    const limiter = createGradient2({ initial: INITIAL });
    const { callers } = setup;
    const calling = keepCalling({
      callers,
      call: () => limiter.run(() => callDownstream(setup)),
    });
    return { ...calling, close: async () => undefined };
  },
};
