/** Records endpoint changes in the change log, without secrets. Undoes some of these changes. */
import * as z from "zod";
import { readOptional } from "../../core/input/options.ts";
import { TEXT, WHO_AND_WHY, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { ChangeLog, Inverse } from "../../core/stores/insight/change-log.ts";
import {
  MOST_OF_TEXT,
  NOT_NOW,
  type ChangeFacts,
  type KeptQueueChange,
  type QueueChange,
} from "../../core/stores/insight/changes.ts";
import { EndpointMissingError } from "../errors.ts";
import type { EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { Endpoint } from "./record.ts";

export interface UndoEndpointChange extends WhoAndWhy {
  /** The id of the change to undo. Defaults to the last change of any endpoint. */
  readonly id?: string | undefined;
}

interface EndpointChangesParts {
  readonly sender: string;
  readonly log: ChangeLog;
  readonly read: (name: EndpointName) => Promise<Endpoint | undefined>;
  /** Disables an endpoint for the reason `why`, or enables it if that is undefined. */
  readonly setDisabled: (name: EndpointName, why: string | undefined) => Promise<boolean>;
}

const UNDO = z.strictObject({ ...WHO_AND_WHY, id: TEXT.optional() });

/** Methods that make a change and record it. */
interface NotedChanges {
  settings(
    action: "put" | "setLimits" | "rotateSecret",
    name: EndpointName,
    said: WhoAndWhy,
    make: () => Promise<Endpoint>,
  ): Promise<Endpoint>;
  removal(name: EndpointName, said: WhoAndWhy, make: () => Promise<boolean>): Promise<boolean>;
  /** Disables an endpoint for the reason `why`, or enables it if that is undefined. */
  switched(name: EndpointName, why: string | undefined, said: WhoAndWhy): Promise<boolean>;
  undo(given?: UndoEndpointChange): Promise<QueueChange | undefined>;
}

export function createEndpointChanges({
  sender,
  log,
  read,
  setDisabled,
}: EndpointChangesParts): NotedChanges {
  const about = ({ tenant, endpoint: id }: EndpointName) => ({
    queue: sender,
    endpoint: { tenant, id },
  });

  return {
    async settings(action, name, said, make) {
      const before = await read(name);
      const noted = { ...about(name), action, ...said, before: before && factsOf(before) };
      return log.make(noted, make, async (endpoint) => ({ after: factsOf(endpoint, before) }));
    },
    async removal(name, said, make) {
      const before = await read(name);
      if (before === undefined) return make();
      return log.make({ ...about(name), action: "remove", ...said, before: factsOf(before) }, make);
    },
    async switched(name, why, said) {
      const before = await read(name);
      if (before === undefined) throw new EndpointMissingError(name);
      const action = why === undefined ? ("enable" as const) : ("disable" as const);
      const noted = { ...about(name), action, ...said, before: stateOf(before.disabled?.reason) };
      return log.make({ ...noted, after: stateOf(why) }, () => setDisabled(name, why));
    },
    async undo(given) {
      const asked = readOptional("endpoints.undo()", UNDO, given);
      return log.undo({ queue: sender, isOfEndpoint: true, inverseOf }, asked);
    },
  };

  async function inverseOf({ endpoint, before, after }: KeptQueueChange): Promise<Inverse> {
    const name = { tenant: endpoint!.tenant, endpoint: endpoint!.id! };
    const now = await read(name);
    if (now === undefined) return { reason: NOT_NOW.endpointRemoved };
    const isDisabled = now.disabled !== undefined;
    if (isDisabled !== after?.["disabled"]) {
      return { reason: NOT_NOW.endpointIs(isDisabled ? "disabled" : "enabled") };
    }
    const why = before?.["disabled"] === true ? String(before["why"]) : undefined;
    return {
      before: stateOf(now.disabled?.reason),
      after: stateOf(why),
      make: () => setDisabled(name, why),
    };
  }
}

function stateOf(why: string | undefined): ChangeFacts {
  return why === undefined ? { disabled: false } : { disabled: true, why };
}

/**
 * Returns the settings of an endpoint for the change log, without secrets and encrypted values, and
 * with only the host of the URL.
 */
function factsOf(endpoint: Endpoint, before?: Endpoint): ChangeFacts {
  const { url, types, rate, concurrency, ordered, batch, timeoutMs, scheduleMs } = endpoint;
  const { signature, headers, hasCertificate, secrets, description, disabled } = endpoint;
  const facts = {
    // Only the host is logged, because the path of a URL may be secret.
    url: `${new URL(url).origin}/…`,
    types: types?.join(", "),
    rate: typeof rate === "object" ? JSON.stringify(rate) : rate,
    concurrency,
    ordered,
    batch,
    timeoutMs,
    scheduleMs: scheduleMs?.join(", "),
    signature,
    headers: headers.length === 0 ? undefined : headers.join(", "),
    certificate: hasCertificate ? true : undefined,
    secrets,
    description,
    disabled: disabled?.reason,
    changed: before === undefined ? undefined : changedOf(before, endpoint),
  };
  const known = Object.entries(facts).filter(([, value]) => value !== undefined);
  return Object.fromEntries(
    known.map(([name, value]) => [name, typeof value === "string" ? cut(value) : value]),
  ) as ChangeFacts;
}

/**
 * Returns the names of changed settings. For a setting whose value is not logged, the log contains
 * only this name.
 */
function changedOf(before: Endpoint, after: Endpoint): string | undefined {
  const names = Object.keys({ ...before, ...after }) as (keyof Endpoint)[];
  const changed = names.filter(
    (name) => !UNLISTED.has(name) && JSON.stringify(before[name]) !== JSON.stringify(after[name]),
  );
  return changed.length === 0 ? undefined : changed.join(", ");
}

const UNLISTED: ReadonlySet<string> = new Set([
  "createdAtMs",
  "changedAtMs",
  "waiting",
  "disabled",
]);

function cut(text: string): string {
  return text.length <= MOST_OF_TEXT ? text : `${text.slice(0, MOST_OF_TEXT)}…`;
}
