/** The percentiles of waits, in ms. Each is at most 2 % too high. */
export interface WaitSummary {
  readonly calls: number;
  readonly meanMs: number;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** Each octave has this many parts, so that a value is known to 2 %. */
const PARTS = 64;
const PART_BITS = 6;
/** 1 is added to each value, so that values from 0 have a place. */
const double = new Float64Array(1);
const halves = new Uint32Array(double.buffer);
/** The exponent and the first bits of 1. */
const FIRST = 1_023 << PART_BITS;

/** Counts waits by their size. It needs the same memory for any number of waits. */
export class Histogram {
  #counts = new Uint32Array(256);
  #calls = 0;
  #sumMs = 0;
  #maxMs = 0;

  add(ms: number): void {
    double[0] = ms + 1;
    const at = (halves[1]! >>> (20 - PART_BITS)) - FIRST;
    if (at >= this.#counts.length) this.#grow(at);
    this.#counts[at]! += 1;
    this.#calls += 1;
    this.#sumMs += ms;
    if (ms > this.#maxMs) this.#maxMs = ms;
  }

  #grow(at: number): void {
    const larger = new Uint32Array(Math.max(at + 1, 2 * this.#counts.length));
    larger.set(this.#counts);
    this.#counts = larger;
  }

  get calls(): number {
    return this.#calls;
  }

  summary(): WaitSummary {
    const calls = this.#calls;
    return {
      calls,
      meanMs: calls === 0 ? 0 : this.#sumMs / calls,
      p50Ms: this.#percentile(0.5),
      p90Ms: this.#percentile(0.9),
      p99Ms: this.#percentile(0.99),
      maxMs: this.#maxMs,
    };
  }

  #percentile(part: number): number {
    const wanted = Math.ceil(part * this.#calls);
    let seen = 0;
    for (const [at, count] of this.#counts.entries()) {
      seen += count;
      if (seen >= wanted && wanted > 0) return Math.min(this.#maxMs, endOf(at));
    }
    return 0;
  }
}

/** The upper end of a part, in ms. */
function endOf(at: number): number {
  const octave = Math.floor((at + 1) / PARTS);
  const part = (at + 1) % PARTS;
  return 2 ** octave * (1 + part / PARTS) - 1;
}
