/** How providers count, on this process's monotonic clock, in seconds. */

/** Refuses or counts an amount. */
export interface Quota {
  /** Whether so much may be taken now; counts nothing. */
  has(amount: number): boolean;
  take(amount: number): void;
  /** What an answer took beyond what was counted when it was asked for; below 0 if it took less. */
  correct(amount: number): void;
}

const nowS = (): number => performance.now() / 1_000;

/** Flows in evenly up to its capacity, and is full at first, as those of OpenAI, Anthropic and AWS. */
export function flowing(capacity: number, perS: number): Quota {
  let level = capacity;
  let atS = nowS();
  function refill(): void {
    const now = nowS();
    level = Math.min(capacity, level + ((now - atS) * capacity) / perS);
    atS = now;
  }
  return {
    has(amount) {
      refill();
      return level >= amount;
    },
    take(amount) {
      refill();
      level -= amount;
    },
    correct(amount) {
      refill();
      level = Math.min(capacity, level - amount);
    },
  };
}

/** Counts within windows that begin with the clock, and forgets at their ends, as that of Azure. */
export function windowed(max: number, perS: number): Quota {
  let used = 0;
  let window = -1;
  function turn(): void {
    const now = Math.floor(nowS() / perS);
    if (now === window) return;
    window = now;
    used = 0;
  }
  return {
    has(amount) {
      turn();
      return used + amount <= max;
    },
    take(amount) {
      turn();
      used += amount;
    },
    correct(amount) {
      turn();
      used = Math.max(0, used + amount);
    },
  };
}

/** Never more than so many in any time of that length. */
export function sliding(max: number, perS: number): Quota {
  const takenS: number[] = [];
  return {
    has(amount) {
      const before = takenS.at(-(max - amount + 1));
      return before === undefined || nowS() - before >= perS;
    },
    take(amount) {
      for (let each = 0; each < amount; each++) takenS.push(nowS());
    },
    correct() {},
  };
}
