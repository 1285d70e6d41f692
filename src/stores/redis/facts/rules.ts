import type { Cluster, Redis } from "ioredis";
import type { RulesStore } from "../../../core/stores/insight/rules.ts";
import type { Requests } from "../requests/requests.ts";
import { fleetBase, FLEET } from "../scripts/insight/insight.ts";
import {
  readRuled,
  readRules,
  rulesDone,
  rulesNote,
  rulesOffer,
} from "../scripts/insight/rules.ts";
import { runScript } from "../scripts/script.ts";

export function createRedisRules(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send">,
): RulesStore {
  const base = fleetBase({ prefix });
  const send = <T>(run: () => Promise<T>): Promise<T> => requests.send(FLEET, run);
  return {
    offerRules: (offer) => send(() => runScript(redis, rulesOffer, { ...offer, prefix })),
    rules: () =>
      send(async () => {
        const head = await redis.get(`${base}:rules`);
        return head === null ? undefined : readRules(head);
      }),
    noteRules: (note) => send(() => runScript(redis, rulesNote, { ...note, prefix })),
    rulesApplied: (rules) => send(() => runScript(redis, rulesDone, { ...rules, prefix })),
    ruledNames: () => send(() => redis.hkeys(`${base}:rules:texts`)),
    ruledOf: (names) =>
      send(async () => {
        const found = await redis.hmget(`${base}:rules:texts`, ...names);
        return found.map((text) => (text === null ? undefined : readRuled(text)));
      }),
    declaredOf: (buckets) =>
      send(async () => {
        if (buckets.length === 0) return [];
        const found = await redis.hmget(`${base}:declared`, ...buckets);
        return found.map((text) => text ?? undefined);
      }),
  };
}
