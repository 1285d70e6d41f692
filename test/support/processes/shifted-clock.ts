/** Puts this process's wall clock wrong by $CLOCK_SHIFT_MS, or later by another time; leaves its monotonic one as it is. */
let shiftMs = Number(process.env["CLOCK_SHIFT_MS"] ?? "0");
const TrueDate = Date;

class ShiftedDate extends TrueDate {
  constructor(...given: unknown[]) {
    if (given.length === 0) super(TrueDate.now() + shiftMs);
    else super(...(given as [number]));
  }

  static override now(): number {
    return TrueDate.now() + shiftMs;
  }
}

globalThis.Date = ShiftedDate as DateConstructor;
/** Has this process's wall clock step. */
globalThis.shiftClock = (ms) => void (shiftMs = ms);

declare global {
  var shiftClock: ((ms: number) => void) | undefined;
}

export {};
