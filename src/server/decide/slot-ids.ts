/**
 * The ids of slots. An id holds what any server of the fleet has to know of its slot, signed with a secret that they share
 * in Redis: a draw writes nothing for it, and nobody else can make one.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { SlotSecrets } from "../../core/stores/insight/slots.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { SlotFacts } from "../../throttle/slot/slot.ts";

/** What an id says. */
export interface SlotId {
  readonly bucket: string;
  /** Tells it from other slots. */
  readonly name: string;
  /** Until when it is held unless it was renewed, in ms since 1970 on the bucket's clock. */
  readonly untilMs: number;
  readonly facts: SlotFacts;
}

export interface SlotIds {
  /** Resolves when this server knows the secret of the fleet, or Redis did not tell it; undefined if that is so. */
  ready(): Promise<void> | undefined;
  write(id: SlotId): string;
  /** What a text says that a server of this fleet wrote; undefined of any other. */
  read(text: string): Promise<SlotId | undefined>;
}

const SECRET_BYTES = 32;
const SIGNATURE_BYTES = 16;
/** Redis may lose the secret, or another server may have brought its own meanwhile. */
const ASK_EVERY_MS = 60_000;
/** Of ids that this server does not know, most are made up. */
const ASK_AGAIN_MS = 1_000;
/** As many secrets are known: ids of former ones are still about. */
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
  /** The first is the one to sign with. */
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
      // Then this server alone knows the ids that it writes, until Redis answers.
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
