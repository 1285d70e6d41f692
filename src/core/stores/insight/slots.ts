/**
 * Shares a secret among HTTP servers, so that each server can settle and release the slots that
 * another server granted.
 */
export interface SlotSecrets {
  /** Returns the stored secret that signs slot ids. Stores and returns `own` if there is none. */
  slotSecret(own: string): Promise<string>;
}

/** A slot that a server has granted. */
export interface GivenSlot {
  /** The slot id, unique within the bucket. */
  readonly slot: string;
  /**
   * The time when the slot expires unless it is renewed, in ms since 1970 on the bucket's clock.
   */
  readonly untilMs: number;
}

export interface SlotNote extends GivenSlot {
  readonly bucket: string;
  readonly what: "look" | "settle" | "release" | "renew";
  /** For `"renew"`: the new remaining time from now, in ms. */
  readonly holdMs?: number | undefined;
}

export interface SlotNoted {
  /** The state before the request. `"over"` means that the slot was released or has expired. */
  readonly state: "held" | "settled" | "over";
  /** The remaining time until the slot expires, in ms. */
  readonly leftMs: number;
}

/** How long the store keeps a secret after its last use, in ms. */
export const SLOT_SECRET_KEPT_MS = 2_592_000_000;
