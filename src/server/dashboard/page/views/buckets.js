import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { count, duration, plural, rate } from "../parts/format.js";
import {
  badges,
  bar,
  nothing,
  pager,
  searchBox,
  setBy,
  spark,
  table,
  tile,
} from "../parts/parts.js";

const PAGE = 25;
const HEADS = [
  "Bucket",
  "Calls per second",
  "Last 10 min",
  "#Waiting calls",
  "#Longest wait",
  "#Queued jobs",
  "Limited by",
  "Set by",
];
/** The columns that can be sorted, by the names that the server knows. */
const SORTS = {
  Bucket: "name",
  "Calls per second": "share",
  "Waiting calls": "waiting",
  "Longest wait": "oldest",
};

function ownOf(values, name) {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}

export function bucketsView({ redraw, stay }) {
  const shown = stay("buckets", { search: "", sort: "waiting", pages: [] });

  function set(change) {
    Object.assign(shown, { pages: [] }, change);
    redraw();
  }

  return {
    title: "Buckets",
    async load(signal) {
      const { search, sort, pages } = shown;
      const offset = pages.at(-1) ?? 0;
      const query = new URLSearchParams({ search, sort, offset, limit: PAGE, recent: true });
      const [totals, page] = await Promise.all([
        ask("api/v1/overview", { signal }),
        ask(`api/v1/buckets?${query}`, { signal }),
      ]);
      if (page.buckets.length === 0 && offset > 0) {
        shown.pages = [];
        return this.load(signal);
      }
      return { totals, page, offset };
    },
    draw({ totals, page: { buckets, queuedJobs, recent, total }, offset }) {
      const last = offset + buckets.length;
      const range = total > PAGE ? `${count(offset + 1)}–${count(last)} of ` : "";
      const empty =
        shown.search === ""
          ? "No process has used a bucket yet. A bucket appears here after its first call."
          : `No bucket has “${shown.search}” in its name.`;
      return [
        h("h1.unseen", {}, "Buckets"),
        tiles(totals),
        totals.unreachable.map(({ bucket, reason }) =>
          h(
            "p.alert",
            { role: "alert" },
            `${bucket ?? "A Redis server"} is unreachable: ${reason}`,
          ),
        ),
        h(
          "section.panel",
          { "aria-label": "Buckets" },
          h(
            "div.tools",
            {},
            searchBox("Search buckets", shown.search, (search) => set({ search })),
            h("span.muted", {}, range, plural(total, "bucket")),
          ),
          table(
            "Buckets",
            HEADS,
            buckets.map((status) =>
              row(status, ownOf(queuedJobs, status.name), ownOf(recent, status.name)),
            ),
            empty,
            { keys: buckets.map(({ name }) => name), heading },
          ),
          pager(shown.pages, last < total ? last : undefined, (pages) => set({ pages })),
        ),
      ];
    },
  };

  function heading(label) {
    const sort = SORTS[label];
    if (sort === undefined) return [label];
    const order = sort === "name" ? "ascending" : "descending";
    const isSorted = shown.sort === sort;
    const arrow = h("span", { "aria-hidden": "true" }, sort === "name" ? " ↑" : " ↓");
    const button = h(
      "button.sort",
      { type: "button", onclick: () => set({ sort }) },
      label,
      isSorted ? arrow : "",
    );
    return [button, isSorted ? order : "none"];
  }
}

function row(status, queued, recent) {
  const { name, actualPerSecond: actual, capPerSecond: cap, waiting, limitedBy, hasCalls } = status;
  const held = badges(status);
  const isWaiting = waiting.total > 0;
  return [
    h("a.name", { href: `#/bucket/${encodeURIComponent(name)}` }, name),
    h(
      "div.rate",
      {},
      h(
        "span",
        {},
        h("b", {}, rate(actual)),
        cap !== undefined && h("span.muted", {}, ` of ${rate(cap)}`),
      ),
      cap !== undefined && bar(actual / cap, { isRate: true }),
      hasCalls ? undefined : h("span.muted", {}, "no calls yet"),
    ),
    spark(recent, cap),
    isWaiting ? count(waiting.total) : h("span.muted.nothing", {}, "0"),
    isWaiting ? duration(waiting.oldestMs) : nothing(),
    queued === undefined ? nothing() : count(queued),
    held.length > 0
      ? held
      : isWaiting && limitedBy !== undefined
        ? h("code", {}, limitedBy)
        : nothing(),
    setBy(status),
  ];
}

function tiles(totals) {
  const { waiting, oldestMs, queuedJobs, cooling, paused, away, overrides } = totals;
  const { actualPerSecond: actual, capPerSecond: cap } = totals;
  const stopped = cooling + paused + away;
  const causes = [
    paused > 0 && `${paused} paused`,
    cooling > 0 && `${cooling} cooling down`,
    away > 0 && `${away} with an unreachable downstream`,
  ].filter(Boolean);
  const share = cap === 0 ? undefined : actual / cap;
  return h(
    "div.tiles",
    {},
    tile("Waiting calls", count(waiting), { note: "in all processes" }),
    tile("Longest wait", waiting === 0 ? "–" : duration(oldestMs), {
      note: waiting === 0 ? "no call is waiting" : "among the waiting calls",
    }),
    tile("Queued jobs", count(queuedJobs), { note: "due, not started yet" }),
    tile("Rate in use", share === undefined ? "–" : `${Math.round(share * 100)} %`, {
      meter: share ?? 0,
      note:
        share === undefined
          ? "no bucket has a rate"
          : `${rate(actual)} of ${rate(cap)} calls per second`,
    }),
    tile("Stopped buckets", count(stopped), {
      isWarning: stopped > 0,
      note: stopped === 0 ? "no pause, no cooldown" : causes.join(", "),
    }),
    tile("Overrides", count(overrides), {
      note: overrides === 0 ? "no limit changed by an operator" : "limits changed by operators",
    }),
  );
}
