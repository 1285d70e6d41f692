/** What several views show. */
import { h, svg } from "./dom.js";
import { WAIT_REASONS } from "./forms.js";
import { ago, count, duration, plural, rate, time } from "./format.js";

export const tile = (label, value, { note = "", isWarning, meter } = {}) =>
  h(
    `div.tile${isWarning ? ".warn" : ""}`,
    {},
    h("div.label", {}, label),
    h("div.value", {}, value),
    meter !== undefined && bar(meter, { isRate: true }),
    h("div.note", {}, note),
  );

export const button = (label, onclick, props) =>
  h("button", { type: "button", onclick, ...props }, label);

/** A section with a heading, and `tools` beside the heading. */
export const panel = (title, children, ...tools) =>
  h(
    "section.panel",
    { "aria-label": title },
    h("div.tools", {}, h("h2", {}, title), tools),
    children,
  );

/** The top of a page: its title, facts below it, and buttons. */
export const pageHead = (title, facts, buttons, ...more) =>
  h(
    "div.head",
    {},
    h("div", {}, h("h1", {}, title), h("p.muted", {}, facts), more),
    buttons === undefined
      ? h("p.muted", {}, "Your token cannot make changes.")
      : h("div.actions", {}, buttons),
  );

export const searchBox = (label, value, search) =>
  h(
    "label.search",
    {},
    h("span.unseen", {}, label),
    h("input", {
      type: "search",
      placeholder: label,
      id: "search",
      value,
      oninput: ({ target }) => search(target.value),
    }),
  );

/** How long ago something was. The exact time is shown under the pointer. */
export const when = (atMs) =>
  h("time", { datetime: new Date(atMs).toISOString(), title: time(atMs) }, ago(atMs));

/** A share from 0 to 1, which stands beside the bar as text too. A bucket at its cap does what it should: it is green. */
export function bar(part, { isRate = false } = {}) {
  const tone = isRate && part >= 0.95 ? ".at-cap" : "";
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
      ? "no calls recorded"
      : `up to ${rate(Math.max(...rates))}/s in the last ten minutes`;
  return svg(
    "svg.spark",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": label,
      preserveAspectRatio: "none",
    },
    cap !== undefined && svg("line.cap", { x1: 0, x2: width, y1: y(cap), y2: y(cap) }),
    points.length === 0
      ? undefined
      : svg("path.area", { d: `M0,${height} L${points.join(" L")} L${width},${height} Z` }),
    points.length === 0 ? undefined : svg("polyline.line", { points: points.join(" ") }),
  );
}

/** Why a bucket starts no calls or fewer calls, the strongest reason first. */
export function badges(status) {
  const { pausedForMs, coolingForMs, unreachableForMs, rateFactor } = status;
  const found = [];
  if (isOn(pausedForMs))
    found.push(
      badge("danger", pausedForMs === "forever" ? "paused" : `paused, ${duration(pausedForMs)}`),
    );
  if (isOn(unreachableForMs)) found.push(badge("danger", "downstream unreachable"));
  if (isOn(coolingForMs)) found.push(badge("warn", `cooling down, ${duration(coolingForMs)}`));
  if (rateFactor < 1) found.push(badge("warn", `${Math.round(rateFactor * 100)} % of the rate`));
  return found;
}

const TONES = { active: "info", done: "good", failed: "danger", cancelled: "warn" };
/** The state of a job. Undefined for a job of a queue that the token is not for. */
export const jobState = (state) =>
  badge(TONES[state] ?? "quiet", state ?? "not in the scope of your token");

/** Why a job waits, as a clause: `"a limit of the bucket has no room (100/s)"`. */
export function whyText({ waitsFor, limit, parents, isGroupOpen }) {
  if (waitsFor === "parents") {
    const open = isGroupOpen ? "its group is open" : "";
    const jobs =
      parents?.count > 0 ? `${plural(parents.count, "parent has", "parents have")} not ended` : "";
    return [jobs, open].filter((text) => text !== "").join(", and ") || WAIT_REASONS.parents;
  }
  return `${WAIT_REASONS[waitsFor] ?? waitsFor}${limit === undefined ? "" : ` (${limit})`}`;
}

export const keyOf = ({ key }) =>
  key === undefined ? nothing() : typeof key === "string" ? key : key.join(" / ");

export const isOn = (ms) => ms === "forever" || ms > 0;
export const badge = (tone, text) => h(`span.badge.${tone}`, {}, text);

/** Where a value in force comes from. */
export function setBy({ source, setBy: by }) {
  if (source === "code") return h("span.muted", {}, "code");
  const who = by === undefined ? "" : ` by ${by.by}`;
  const end =
    by === undefined || by.endsInMs === "forever" ? "" : `, ends in ${duration(by.endsInMs)}`;
  return h(
    "span",
    { title: by?.reason ?? false },
    badge(source === "override" ? "info" : "quiet", source),
    who,
    end,
  );
}

/** The settings in force and where each comes from. `note` replaces the usual label of a source. */
export function settingsPanel(title, settings, empty, note = {}) {
  const rows = settings.map(({ name, value, setBy: source, override }) => [
    h("code", {}, name),
    typeof value === "string" ? value : name.endsWith("Ms") ? duration(value) : count(value),
    note[source]?.() ?? setBy({ source, setBy: override }),
  ]);
  return tablePanel(title, ["Setting", "Value", "Set by"], rows, empty);
}

/**
 * A table. A heading that begins with # is for a column of numbers. On a narrow screen, each row becomes a card. Screen
 * readers read `label`. `heading` returns the content of a heading and its `aria-sort`.
 */
export function table(label, heads, rows, empty, { kind = "cards", keys = [], heading } = {}) {
  if (rows.length === 0) return h("p.empty", {}, empty);
  const columns = heads.map((head) => [head.replace("#", ""), head.startsWith("#") ? ".num" : ""]);
  const head = ([name, tone]) => {
    const [content, sort = false] = heading?.(name) ?? [name];
    return h(`th${tone}`, { scope: "col", "aria-sort": sort }, content);
  };
  const cell = (content, at) => h(`td${columns[at][1]}`, { "data-label": columns[at][0] }, content);
  return h(
    "div.scroll",
    { tabindex: 0, role: "region", "aria-label": label },
    h(
      `table.${kind}`,
      {},
      h("thead", {}, h("tr", {}, columns.map(head))),
      h(
        "tbody",
        {},
        rows.map((row, at) => h("tr", { "data-key": keys[at] }, row.map(cell))),
      ),
    ),
  );
}

export const tablePanel = (title, ...parts) => panel(title, table(title, ...parts));

/** A link to the view at `path`: `"queue", "mails"`. */
export const link = (text, ...path) =>
  h("a", { href: `#/${path.map(encodeURIComponent).join("/")}` }, text);

export const notice = (tone, text) => h(`p.alert.${tone}`, {}, text);

export const countOrDash = (number) => (number === 0 ? nothing() : count(number));

export const nothing = () => h("span.muted.nothing", {}, "–");

/** A link to the list that this page belongs to. */
export function crumb(href, label) {
  return h(
    "nav.crumb",
    { "aria-label": "Breadcrumb" },
    h("a", { href }, label),
    h("span", { "aria-hidden": "true" }, " / "),
  );
}

/** Buttons for pages that name the next one by a cursor. `go` gets the cursors up to the page to show. */
export function pager(pages, next, go, [backLabel, nextLabel] = ["Previous", "Next"]) {
  if (pages.length === 0 && next === undefined) return undefined;
  return h(
    "nav.pager",
    { "aria-label": "Pages" },
    button(backLabel, () => go(pages.slice(0, -1)), { disabled: pages.length === 0 }),
    button(nextLabel, () => go([...pages, next]), { disabled: next === undefined }),
  );
}
