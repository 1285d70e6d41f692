/** The scenario of one sender that delivers stored webhooks, compared with a BullMQ worker that only posts. */
import { startReceiver } from "../webhooks/stage.ts";
import { deliver, type Deliveries } from "../webhooks/throughput.ts";
import { importBuild } from "./import-build.ts";
import type { Run, Scenario } from "./scenario.ts";
import type { Figures } from "./verdict.ts";

const PER_SECOND = 500;

const webhooks: Scenario = {
  title: "webhooks",
  figures: [
    { key: "perSecond", title: "deliveries per second", better: "higher", digits: 0 },
    {
      key: "senderUs",
      title: "sender CPU per delivery, its start included, µs",
      better: "lower",
      digits: 0,
    },
    { key: "redisUs", title: "Redis CPU per delivery, µs", better: "lower", digits: 0 },
  ],
  async run(run, build) {
    await importBuild(build, "./webhooks");
    return send(run, { kind: "sluice", build });
  },
  peer: { title: "BullMQ that only posts", run: (run) => send(run, { kind: "bullmq" }) },
};

async function send(
  { bench, seconds }: Run,
  sender: Pick<Deliveries, "kind" | "build">,
): Promise<Figures> {
  const receiver = await startReceiver();
  try {
    const count = PER_SECOND * seconds;
    const { perSecond, senderUs, redisUs } = await deliver(bench, receiver, { ...sender, count });
    return { perSecond, senderUs, redisUs };
  } finally {
    await receiver.end();
  }
}

export const deliveries = { webhooks } as const satisfies Readonly<Record<string, Scenario>>;
