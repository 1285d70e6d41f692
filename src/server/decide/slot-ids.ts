/**
 * The ids of slots. An id contains what any server of the fleet must know about its slot. It is
 * signed with a secret that the servers share in Redis. So a draw writes nothing for it, and no
 * client can forge one.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { SlotSecrets } from "../../core/stores/insight/slots.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { SlotFacts } from "../../throttle/slot/slot.ts";

/** The content of an id. */
export interface SlotId {
  readonly bucket: string;
  /** Distinguishes it from other slots. */
  readonly name: string;
  /** When the hold ends unless it is renewed, in ms since 1970 on the bucket's clock. */
  readonly untilMs: number;
  readonly facts: SlotFacts;
}

export interface SlotIds {
  /**
   * Resolves when this server knows the fleet's secret, or Redis did not return it. Returns
   * undefined if that is already so.
   */
  ready(): Promise<void> | undefined;
  write(id: SlotId): string;
  /** The content of an id from any server of this fleet; undefined for any other text. */
  read(text: string): Promise<SlotId | undefined>;
}

const SECRET_BYTES = 32;
const SIGNATURE_BYTES = 16;
/** Redis may lose the secret, or another server may have stored a different one. */
const ASK_EVERY_MS = 60_000;
/** Unknown ids are mostly made up, so they trigger a new request at most this often. */
const ASK_AGAIN_MS = 1_000;
/** How many secrets are kept, since ids signed with earlier ones are still in use. */
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
];

export function createSlotIds(store: SlotSecrets): SlotIds {
  /** The first one signs. */
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
      // Only this server knows its ids until Redis responds.
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
      const packed: Packed = [
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
      ];
      const said = Buffer.from(JSON.stringify(packed)).toString("base64url");
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
      const what = { key: key ?? undefined, cost: cost ?? undefined };
      return {
        bucket,
        name,
        untilMs,
        facts: { slotUs, generation, ...what, policy, lease, asker },
      };
    },
  };
}

function signatureOf(said: string, secret: string): Buffer {
  return createHmac("sha256", secret).update(said).digest().subarray(0, SIGNATURE_BYTES);
}
