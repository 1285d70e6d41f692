import type { PolicyOptions } from "sluice";
import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepNoting } from "./keep-calling.ts";

/** The limits of the part `levels`. Only the limit over all keys restricts the calls. */
export const LEVELS = {
  all: { perSecond: 1_000, burst: 1 },
  tenant: { perSecond: 20, burst: 1, tenants: 1_000 },
  endpoint: { perSecond: 5, burst: 1, perTenant: 10 },
} as const;

const { all, tenant, endpoint } = LEVELS;
const TENANT = { rate: `${tenant.perSecond}/s` } as const;
const ENDPOINT = { rate: `${endpoint.perSecond}/s` } as const;

/** Calls of random endpoints, under a limit for all keys together and a limit for each tenant. */
export const oneLevel: Contender = levels("Sluice, one level", TENANT);
/** The same calls, with an additional limit for each endpoint. */
export const twoLevels: Contender = levels("Sluice, two levels", [TENANT, ENDPOINT]);

function levels(title: string, perKey: NonNullable<PolicyOptions["perKey"]>): Contender {
  return {
    title,
    async connect({ redisUrl, callers, build }) {
      const { createSluice } = await importBuild(build);
      const opened = createSluice({ redis: redisUrl });
      const bucket = opened.bucket("bench", { rate: `${all.perSecond}/s`, perKey });
      await bucket.draw({ key: ["warm-up", "warm-up"] });

      const calling = keepNoting({
        callers,
        async call() {
          const number = Math.floor(Math.random() * tenant.tenants * endpoint.perTenant);
          const slot = await bucket.draw({ key: keyOf(number) });
          return [number, 1, slot.atMs];
        },
      });
      return { ...calling, close: () => opened.close() };
    },
  };
}

/** Returns the path of an endpoint by its number. */
export function keyOf(number: number): readonly [tenant: string, endpoint: string] {
  return [`t${tenantOf(number)}`, `e${number % endpoint.perTenant}`];
}

export function tenantOf(number: number): number {
  return Math.floor(number / endpoint.perTenant);
}
