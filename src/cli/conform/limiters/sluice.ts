import { createSluice } from "../../../sluice/create-sluice.ts";
import type { Limiter, Rate, Send } from "./contract.ts";

const NAME = "conform";

export const sluice: Limiter = {
  title: "Sluice",
  async open({ redisUrl, prefix, plan, send }) {
    const silent = { warn: () => undefined, error: () => undefined };
    const opened = createSluice({ redis: redisUrl, prefix, logger: silent });
    const rate = textOf(plan.rate);
    if (plan.members !== undefined) {
      const members = Object.fromEntries(plan.members.map((name) => [name, { rate, value: name }]));
      const pool = opened.pool(NAME, { members });
      const call = pool.throttled((member: string, sendNow: Send) => sendNow(member));
      return { doesCoolDown: true, call: () => call(send) };
    }
    const bucket = opened.bucket(NAME, {
      rate,
      onStoreDown: "wait",
      ...(plan.perKey === undefined ? {} : { perKey: { rate: textOf(plan.perKey) } }),
      ...(plan.statesQuota === true ? { pace: "headers" as const } : {}),
    });
    const hasKeys = plan.perKey !== undefined;
    return {
      doesCoolDown: true,
      call: (key) => bucket.run(() => send(key), hasKeys ? { key } : {}),
    };
  },
};

function textOf({ calls, seconds }: Rate): "1/s" {
  return `${calls}/${seconds}s` as "1/s";
}
