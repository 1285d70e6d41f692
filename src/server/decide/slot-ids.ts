/**
 * Creates and reads slot ids. An id contains all data that a server needs about its slot, so a draw
 * stores no data for it. Each id is signed with a secret that the servers share through Redis, so
 * no client can forge an id.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { SlotSecrets } from "../../core/stores/insight/slots.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { SlotFacts } from "../../throttle/slot/slot.ts";

/** The content of a slot id. */
export interface SlotId {
  readonly bucket: string;
  /** Distinguishes the slot from other slots. */
  readonly name: string;
  /**
   * The time at which the hold ends unless it is renewed, in ms since 1970 on the bucket's clock.
   */
  readonly untilMs: number;
  readonly facts: SlotFacts;
}

export interface SlotIds {
  /**
   * Resolves when this server knows the fleet's secret, or Redis did not return the secret. Returns
   * undefined if there is nothing to wait for.
   */
  ready(): Promise<void> | undefined;
  write(id: SlotId): string;
  /**
   * Returns the content of an id that any server of this fleet created. Returns undefined for any
   * other text.
   */
  read(text: string): Promise<SlotId | undefined>;
}

const SECRET_BYTES = 32;
const SIGNATURE_BYTES = 16;
/**
 * How often the secret is read again. Redis may lose the secret, or another server may have stored
 * a different one.
 */
const ASK_EVERY_MS = 60_000;
/** An unknown id triggers a new read at most this often, because most unknown ids are made up. */
const ASK_AGAIN_MS = 1_000;
/** The most secrets that are kept. Ids that were signed with earlier secrets are still in use. */
const MOST_SECRETS = 4;

type Packed = readonly [
  bucket: string,
  name: string,
  untilMs: number,
  slotUs: number,
  generation: number,
  key: string | null,
  cost: Cost | null,
  policy: string,
  lease: number,
  asker: string,
  /** Present for a slot whose cost is only reserved under budgets. */
  reserves?: boolean,
  /** Present for a slot of a pool. */
  member?: string,
];

export function createSlotIds(store: SlotSecrets): SlotIds {
  /** The known secrets. The first one signs. */
  let secrets = [randomBytes(SECRET_BYTES).toString("base64url")];
  let asking: Promise<void> | undefined;
  let hasAsked = false;
  let askedAtMs = -Infinity;

  async function ask(): Promise<void> {
    askedAtMs = performance.now();
    try {
      const secret = await store.slotSecret(secrets[0]!);
      secrets = [secret, ...secrets.filter((each) => each !== secret)].slice(0, MOST_SECRETS);
    } catch {
      // Read the secret again soon. Until Redis responds, only this server can read its ids.
      askedAtMs = performance.now() - ASK_EVERY_MS + ASK_AGAIN_MS;
    } finally {
      hasAsked = true;
      asking = undefined;
    }
  }

  function askAfter(ms: number): Promise<void> | undefined {
    if (asking === undefined && performance.now() >= askedAtMs + ms) asking = ask();
    return asking;
  }

  const isSigned = (said: string, signature: Buffer): boolean =>
    secrets.some((secret) => timingSafeEqual(signatureOf(said, secret), signature));

  return {
    ready: () => (hasAsked ? undefined : askAfter(0)),
    write({ bucket, name, untilMs, facts }) {
      void askAfter(ASK_EVERY_MS);
      const { slotUs, generation, key = null, cost = null, policy, lease, asker } = facts;
      const { reserves = false, member } = facts;
      const packed = [
        bucket,
        name,
        untilMs,
        slotUs,
        generation,
        key,
        cost,
        policy,
        lease,
        asker,
      ] as const;
      const reserving: Packed = reserves ? [...packed, true] : packed;
      const all: Packed = member === undefined ? reserving : [...packed, reserves, member];
      const said = Buffer.from(JSON.stringify(all)).toString("base64url");
      return `${said}.${signatureOf(said, secrets[0]!).toString("base64url")}`;
    },
    async read(text) {
      const [said = "", signed = "", more] = text.split(".");
      const signature = Buffer.from(signed, "base64url");
      if (more !== undefined || signature.length !== SIGNATURE_BYTES) return undefined;
      if (!isSigned(said, signature)) {
        await askAfter(ASK_AGAIN_MS);
        if (!isSigned(said, signature)) return undefined;
      }
      const packed = JSON.parse(Buffer.from(said, "base64url").toString()) as Packed;
      const [bucket, name, untilMs, slotUs, generation, key, cost, policy, lease, asker] = packed;
      const what = { key: key ?? undefined, cost: cost ?? undefined, reserves: packed[10] };
      const member = packed[11];
      return {
        bucket,
        name,
        untilMs,
        facts: { slotUs, generation, ...what, policy, lease, asker, member },
      };
    },
  };
}

function signatureOf(said: string, secret: string): Buffer {
  return createHmac("sha256", secret).update(said).digest().subarray(0, SIGNATURE_BYTES);
}
