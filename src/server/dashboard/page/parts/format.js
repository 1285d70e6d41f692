/** Numbers and times for people to read. */
const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

/** `1500` as `"1.5 s"`. */
export function duration(ms) {
  if (ms === "forever") return "no end";
  if (ms === undefined) return "unknown";
  if (ms < 990) return `${Math.round(ms)} ms`;
  const [unit, length] = UNITS.find(([, each]) => ms >= each * 0.99);
  const value = ms / length;
  return `${value >= 10 ? Math.round(value) : Number(value.toFixed(1))} ${unit}`;
}

export function rate(perSecond) {
  if (perSecond === undefined) return "–";
  if (perSecond >= 100) return count(Math.round(perSecond));
  return String(Number(perSecond.toFixed(perSecond >= 10 ? 1 : 2)));
}

const WHOLE = new Intl.NumberFormat("en");
export const count = (value) => WHOLE.format(value);

const TIME = new Intl.DateTimeFormat("en-GB", {
  day: "2-digit",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
export const time = (ms) => TIME.format(ms);
export const ago = (ms) => `${duration(Math.max(0, Date.now() - ms))} ago`;
export const plural = (many, one, more = `${one}s`) => `${count(many)} ${many === 1 ? one : more}`;

const PERIODS = { ms: 0.001, s: 1, min: 60, h: 3_600, d: 86_400 };

/** The lowest rate that all keys share in a policy such as `"600/min + 25 at once; per key 5/s"`. */
function lowestRate(policy) {
  const [shared = ""] = policy.split(/(?:^|; )(?:per key|in shadow) /);
  const found = [...shared.matchAll(/(?:^|[ ,;])(([\d.]+)\/([\d.]*)(ms|s|min|h|d))\b/g)];
  return found
    .map(([, text, calls, periods, unit]) => ({
      text,
      perSecond: Number(calls) / (Number(periods || 1) * PERIODS[unit]),
    }))
    .toSorted((one, other) => one.perSecond - other.perSecond)
    .at(0);
}

/** `"server-error 500"`. An attempt that never reached its endpoint has the outcome `"ours"`. */
export function outcomeText(outcome, status) {
  if (outcome === "ours") return "not sent";
  return status === undefined ? outcome : `${outcome} ${status}`;
}

/** Calls per second. Undefined if the policy has no rate. */
export const capOf = (policy) => lowestRate(policy)?.perSecond;
/** `"600/min"`. Undefined if the policy has no rate. */
export const rateOf = (policy) => lowestRate(policy)?.text;
