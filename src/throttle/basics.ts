import type { Logger } from "../core/logger.ts";
import type { Store } from "../core/store.ts";
import type { Knowledge } from "./known-terms.ts";

/** What all parts of one bucket work with. */
export interface Basics {
  readonly store: Store;
  readonly bucket: string;
  /** This process, as the store knows it. */
  readonly asker: string;
  readonly known: Knowledge;
  readonly logger: Logger;
}
