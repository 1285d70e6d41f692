/** What several views show. */
import { h, svg } from "./dom.js";
import { ago, count, duration, rate, time } from "./format.js";

export function tile(label, value, { note, tone, meter } = {}) {
  return h(
    `div.tile${tone === undefined ? "" : `.${tone}`}`,
    {},
    h("div.label", {}, label),
    h("div.value", {}, value),
    meter === undefined ? undefined : bar(meter),
    h("div.note", {}, note ?? ""),
  );
}

export const button = (label, onclick, props) =>
  h("button", { type: "button", onclick, ...props }, label);

/** A part of a page under its heading. */
export const panel = (title, ...children) =>
  h("section.panel", { "aria-label": title }, h("h2", {}, title), children);

/** When something was; the time itself is there for who points at it. */
export const when = (atMs) =>
  h("time", { datetime: new Date(atMs).toISOString(), title: time(atMs) }, ago(atMs));

/** A part of a whole, 0 to 1. What it says is beside it as text. */
export function bar(part) {
  const tone = part >= 0.95 ? ".full" : "";
  return h(
    "div.meter",
    { "aria-hidden": "true" },
    h(`i${tone}`, { "width%": Math.min(100, part * 100) }),
  );
}

/** Calls by second as a line, with the cap as a dashed one. */
export function spark(rates = [], cap) {
  const [width, height] = [120, 28];
  const most = Math.max(cap ?? 0, ...rates, 0.001) * 1.1;
  const y = (value) => (height - 1 - (value / most) * (height - 3)).toFixed(1);
  const points = rates.map(
    (value, at) => `${((at / Math.max(1, rates.length - 1)) * width).toFixed(1)},${y(value)}`,
  );
  const label =
    rates.length === 0
      ? "no calls known"
      : `up to ${rate(Math.max(...rates))}/s in the last ten minutes`;
  return svg(
    "svg.spark",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": label,
      preserveAspectRatio: "none",
    },
    cap === undefined ? undefined : svg("line.cap", { x1: 0, x2: width, y1: y(cap), y2: y(cap) }),
    points.length === 0
      ? undefined
      : svg("path.area", { d: `M0,${height} L${points.join(" L")} L${width},${height} Z` }),
    points.length === 0 ? undefined : svg("polyline.line", { points: points.join(" ") }),
  );
}

/** What holds a bucket back now, the strongest first. */
export function badges(status) {
  const { pausedForMs, coolingForMs, awayForMs, rateFactor } = status;
  const found = [];
  if (isOn(pausedForMs))
    found.push(
      badge("danger", pausedForMs === "forever" ? "paused" : `paused, ${duration(pausedForMs)}`),
    );
  if (isOn(awayForMs)) found.push(badge("danger", "downstream away"));
  if (isOn(coolingForMs)) found.push(badge("warn", `cooling, ${duration(coolingForMs)}`));
  if (rateFactor < 1) found.push(badge("warn", `${Math.round(rateFactor * 100)} % of the rate`));
  return found;
}

export const isOn = (ms) => ms === "forever" || ms > 0;
export const badge = (tone, text) => h(`span.badge.${tone}`, {}, text);

/** Who set what is in force. */
export function setBy({ source, setBy: by }) {
  if (source === "code") return h("span.muted", {}, "code");
  const who = by === undefined ? "" : by.by;
  const end = by === undefined || by.endsInMs === "forever" ? "" : `, for ${duration(by.endsInMs)}`;
  return h(
    "span",
    { title: by?.reason ?? false },
    badge(source === "override" ? "info" : "quiet", source),
    ` ${who}${end}`,
  );
}

/** What holds, value by value, and who set each; `note` says it of what has a name of its own. */
export function settingsPanel(title, settings, empty, note = {}) {
  const rows = settings.map(({ name, value, setBy: source, override }) => [
    h("code", {}, name),
    typeof value === "string" ? value : name.endsWith("Ms") ? duration(value) : count(value),
    note[source]?.() ?? setBy({ source, setBy: override }),
  ]);
  return panel(title, table(title, ["Setting", "Value", "Set by"], rows, empty, "cards"));
}

/** A table with a heading for each column; `label` names it for who cannot see it. */
export function table(label, heads, rows, empty, kind = "plain") {
  if (rows.length === 0) return h("p.empty", {}, empty);
  const cells = (row) =>
    row.map((cell, at) =>
      h(`td${heads[at].startsWith("#") ? ".num" : ""}`, { "data-label": name(heads[at]) }, cell),
    );
  return h(
    "div.scroll",
    { tabindex: 0, role: "region", "aria-label": label },
    h(
      `table.${kind}`,
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) =>
            h(`th${head.startsWith("#") ? ".num" : ""}`, { scope: "col" }, name(head)),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) => h("tr", {}, cells(row))),
      ),
    ),
  );
}

/** A column of numbers begins with #. */
const name = (head) => head.replace(/^#/, "");

export const nothing = () => h("span.muted.nothing", {}, "–");

/** Where a page is: below what. */
export function crumb(href, label) {
  return h(
    "nav.crumb",
    { "aria-label": "Where" },
    h("a", { href }, label),
    h("span", { "aria-hidden": "true" }, " / "),
  );
}

/** Back and forth over pages of which each names the next; `go` gets the cursors of the pages up to the one to show. */
export function pager(pages, next, go, [back, on] = ["Previous", "Next"]) {
  if (pages.length === 0 && next === undefined) return undefined;
  return h(
    "nav.pager",
    { "aria-label": "Pages" },
    button(back, () => go(pages.slice(0, -1)), { disabled: pages.length === 0 }),
    button(on, () => go([...pages, next]), { disabled: next === undefined }),
  );
}
