/** What servers know of the slots that they have given to callers, so that any of them can settle and end a slot. */
export interface SlotSecrets {
  /** The secret by which the servers of a fleet know the ids that they gave: the one that is kept, else this one, from now on. */
  slotSecret(own: string): Promise<string>;
}

/** A slot that a server has given. */
export interface GivenSlot {
  /** A name that no other slot of the bucket has. */
  readonly slot: string;
  /** Until when it is held unless it was renewed, in ms since 1970 on the bucket's clock. */
  readonly untilMs: number;
}

/** What is noted of it. */
export interface SlotNote extends GivenSlot {
  readonly bucket: string;
  readonly what: "look" | "settle" | "release" | "renew";
  /** For how long it is renewed, from now. */
  readonly holdMs?: number | undefined;
}

export interface SlotNoted {
  /** `"over"`: it was released, or its time is over. */
  readonly state: "held" | "settled" | "over";
  /** How long it is held from now on. */
  readonly leftMs: number;
}

/** How long a secret is kept. The servers that know it keep it anew. */
export const SLOT_SECRET_KEPT_MS = 2_592_000_000;
