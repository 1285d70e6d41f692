/** The answer to a draw: the moment at which one call may start. */
export interface Slot {
  readonly bucket: string;
  /** The tenant, account or endpoint that the call is for. */
  readonly key: string | undefined;
  /** The slot on the Redis clock, in ms since 1970: `1790000000123.456`. */
  readonly atMs: number;
  /** How long the caller waited for it: `37.2`. */
  readonly waitedMs: number;
  /** The generation of the policy under which the slot was drawn. */
  readonly generation: number;
}
