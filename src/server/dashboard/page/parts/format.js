/** Numbers and times as people read them. */
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

/** What a policy lets pass a second, of `"100/s; per key 5/s"`; undefined where that is no such rate. */
export function capOf(policy) {
  const [shared = ""] = policy.split("; per key");
  const found = [...shared.matchAll(/(?:^|[ ,;])([\d.]+)\/([\d.]*)(ms|s|min|h|d)\b/g)];
  const rates = found.map(
    ([, many, periods, unit]) => Number(many) / (Number(periods || 1) * PERIODS[unit]),
  );
  return rates.length === 0 ? undefined : Math.min(...rates);
}
