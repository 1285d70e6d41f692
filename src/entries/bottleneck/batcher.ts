import { Events, type Emits } from "./events.ts";
import { readBatcherOptions, type BatcherOptions } from "./options.ts";

// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export interface Batcher extends Emits {}

/** Collects data, and emits it as one `"batch"` event when `maxSize` or `maxTime` is reached. */
// oxlint-disable-next-line typescript/no-unsafe-declaration-merging -- Events adds these methods
export class Batcher {
  readonly #events: Events;
  readonly #maxSize: number | undefined;
  readonly #maxTime: number | undefined;
  #pending: unknown[] = [];
  #resolve!: () => void;
  /** Resolves when the current batch is emitted. */
  #flushed = new Promise<void>((resolve) => (this.#resolve = resolve));
  #timer: NodeJS.Timeout | undefined;

  /** @throws {@link InvalidOptionError} when an option can never work. */
  constructor(options: BatcherOptions = {}) {
    const { maxSize, maxTime } = readBatcherOptions(options);
    this.#maxSize = maxSize ?? undefined;
    this.#maxTime = maxTime ?? undefined;
    this.#events = new Events(this);
  }

  /** Adds data to the current batch. Resolves when the batch was emitted. */
  add(data: unknown): Promise<void> {
    const flushed = this.#flushed;
    this.#pending.push(data);
    if (this.#pending.length === this.#maxSize) this.#flush();
    else if (this.#maxTime !== undefined && this.#pending.length === 1) {
      this.#timer = setTimeout(() => this.#flush(), this.#maxTime);
    }
    return flushed;
  }

  #flush(): void {
    clearTimeout(this.#timer);
    const batch = this.#pending;
    this.#pending = [];
    this.#resolve();
    this.#flushed = new Promise((resolve) => (this.#resolve = resolve));
    void this.#events.trigger("batch", batch);
  }
}
