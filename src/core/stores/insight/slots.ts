/** Shares the slots of callers among servers, so that each server can settle and release them. */
export interface SlotSecrets {
  /** Returns the stored secret that signs the ids of slots. Stores the given one if there is none. */
  slotSecret(own: string): Promise<string>;
}

/** A slot that a server has granted. */
export interface GivenSlot {
  /** Unique within the bucket. */
  readonly slot: string;
  /** When it expires unless it is renewed, in ms since 1970 on the bucket's clock. */
  readonly untilMs: number;
}

export interface SlotNote extends GivenSlot {
  readonly bucket: string;
  readonly what: "look" | "settle" | "release" | "renew";
  /** How long it is renewed, from now. */
  readonly holdMs?: number | undefined;
}

export interface SlotNoted {
  /** `"over"`: it was released, or has expired. */
  readonly state: "held" | "settled" | "over";
  /** How long it is still held. */
  readonly leftMs: number;
}

/** How long a secret is kept. Servers that use it extend this. */
export const SLOT_SECRET_KEPT_MS = 2_592_000_000;
