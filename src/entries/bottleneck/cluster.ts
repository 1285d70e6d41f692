import { runScript } from "../../stores/redis/scripts/script.ts";
import { reportLimiter } from "../../stores/redis/scripts/limiters.ts";
import { keyOf, type IORedisConnection } from "./connection.ts";
import { randomId } from "./job.ts";

/** Without the option `timeout`, the counts and settings of a limiter are kept for 30 days after its last job. */
const KEPT_MS = 2_592_000_000;

/** The jobs of all limiters with one id. */
interface Totals {
  readonly queued: number;
  readonly running: number;
  readonly done: number;
}

interface Member {
  readonly id: string;
  readonly connection: IORedisConnection;
  /** How long the jobs of a process count after its last report, in ms. */
  readonly aliveMs: number;
  readonly keptMs: number | undefined;
  readonly jobs: () => { readonly queued: number; readonly running: number };
  readonly settings: () => string;
  /** Called when a job of this limiter has ended and no process runs one. */
  readonly onIdle: () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Shares the counts and settings of a limiter with all limiters that have its id. Each busy limiter reports its jobs,
 * also at intervals, so that the jobs of a killed process stop counting.
 */
export class Cluster {
  /** Identifies this limiter among those with the same id. */
  readonly name = randomId();
  readonly #member: Member;
  readonly #key: string;
  /** The jobs that have ended since the last report, and their weight. */
  #ended = { jobs: 0, weight: 0 };
  /** A report that has not been sent yet. It will contain all changes until then. */
  #next: Promise<Totals> | undefined;
  #latest: Promise<unknown> = Promise.resolve();
  #heartbeat: NodeJS.Timeout;
  #isClosed = false;

  constructor(member: Member) {
    this.#member = member;
    this.#key = keyOf(member.id);
    const beat = (): void => {
      const { queued, running } = member.jobs();
      if (queued + running > 0) this.note();
    };
    this.#heartbeat = setInterval(beat, member.aliveMs / 3).unref();
  }

  /** Reports the jobs of this limiter. Resolves with those of all. */
  report(): Promise<Totals> {
    if (this.#next !== undefined) return this.#next;
    const next = this.#latest.then(() => {
      this.#next = undefined;
      return this.#send(false);
    });
    this.#next = next;
    this.#latest = next.catch(() => undefined);
    return next;
  }

  /** Reports the jobs of this limiter in the background. */
  note(): void {
    if (!this.#isClosed) this.report().catch((error: unknown) => this.#fail(error));
  }

  noteEnd(weight: number): void {
    this.#ended.jobs += 1;
    this.#ended.weight += weight;
    this.note();
  }

  /** Stores the settings if no limiter has done so yet. Resolves with the stored settings. */
  join(): Promise<{ readonly settings: string; readonly isNew: boolean }> {
    return this.#send(false);
  }

  async update(): Promise<void> {
    await this.#send(true);
  }

  /** True if the counts and settings have expired. */
  async isForgotten(): Promise<boolean> {
    return (await this.#member.connection.clients.client!.exists(this.#key)) === 0;
  }

  /** Ends the reports. With `flush`, waits for the last one if Redis is reachable. */
  async close(flush: boolean): Promise<void> {
    clearInterval(this.#heartbeat);
    this.#isClosed = true;
    if (flush && this.#member.connection.clients.client?.status === "ready") await this.#latest;
  }

  async #send(isUpdate: boolean) {
    const { connection, aliveMs, keptMs = KEPT_MS, jobs, settings, onIdle } = this.#member;
    const ended = this.#ended;
    this.#ended = { jobs: 0, weight: 0 };
    const sent = runScript(connection.clients.client!, reportLimiter, {
      key: this.#key,
      limiter: this.name,
      ...jobs(),
      done: ended.weight,
      aliveMs,
      keptMs,
      settings: settings(),
      isUpdate,
    });
    const totals = await sent.catch((error: unknown) => {
      // The next report contains these jobs again.
      this.#ended.jobs += ended.jobs;
      this.#ended.weight += ended.weight;
      throw error;
    });
    // The report of jobs that have ended since then follows.
    if (ended.jobs > 0 && this.#ended.jobs === 0 && totals.running === 0) onIdle();
    return totals;
  }

  #fail(error: unknown): void {
    if (!this.#isClosed) this.#member.onError(error);
  }
}
