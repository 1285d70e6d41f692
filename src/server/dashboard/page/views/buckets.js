/** All buckets: totals, and a table that the server sorts and pages. */
import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { count, duration, plural, rate } from "../parts/format.js";
import { badges, bar, setBy, spark, tile } from "../parts/parts.js";

const PAGE = 25;
const COLUMNS = [
  ["name", "Bucket"],
  ["share", "Rate of cap"],
  [undefined, "Last 10 min"],
  ["waiting", "Waiting"],
  ["oldest", "Oldest"],
  [undefined, "Held back by"],
  [undefined, "Set by"],
];

export function bucketsView({ redraw, stay }) {
  const asked = stay("buckets", { search: "", sort: "waiting", offset: 0 });

  function set(change) {
    Object.assign(asked, change);
    redraw();
  }

  return {
    title: "Buckets",
    async load(signal) {
      const query = new URLSearchParams({ ...asked, limit: PAGE, recent: true });
      const [totals, page] = await Promise.all([
        ask("api/v1/overview", { signal }),
        ask(`api/v1/buckets?${query}`, { signal }),
      ]);
      if (page.buckets.length === 0 && asked.offset > 0) asked.offset = 0;
      return { totals, page };
    },
    draw({ totals, page }) {
      return [
        h("h1.unseen", {}, "Buckets"),
        tiles(totals),
        totals.unreachable.map(({ bucket, reason }) =>
          h("p.alert", { role: "alert" }, `Not seen: ${bucket ?? "a server"}: ${reason}`),
        ),
        h(
          "section.panel",
          { "aria-label": "Buckets" },
          h(
            "div.tools",
            {},
            h(
              "label.search",
              {},
              h("span.unseen", {}, "Search buckets"),
              h("input", {
                type: "search",
                placeholder: "Search buckets",
                id: "search",
                value: asked.search,
                oninput: ({ target }) => set({ search: target.value, offset: 0 }),
              }),
            ),
            h("span.muted", {}, plural(page.total, "bucket")),
          ),
          list(page),
          pager(page),
        ),
      ];
    },
  };

  function list({ buckets, recent, total }) {
    if (total === 0) {
      const why =
        asked.search === ""
          ? "No process has used a bucket yet. It shows up here with its first call."
          : `No bucket is called like “${asked.search}”.`;
      return h("p.empty", {}, why);
    }
    return h(
      "table.cards",
      {},
      h("thead", {}, h("tr", {}, COLUMNS.map(head))),
      h(
        "tbody",
        {},
        buckets.map((status) => row(status, recent[status.name])),
      ),
    );
  }

  function head([sort, label]) {
    const isNumber = label === "Waiting" || label === "Oldest";
    const tag = isNumber ? "th.num" : "th";
    if (sort === undefined) return h(tag, { scope: "col" }, label);
    const isIt = asked.sort === sort;
    const order = sort === "name" ? "ascending" : "descending";
    return h(
      tag,
      { scope: "col", "aria-sort": isIt ? order : "none" },
      h(
        "button.sort",
        { type: "button", onclick: () => set({ sort, offset: 0 }) },
        label,
        h("span", { "aria-hidden": "true" }, isIt ? (sort === "name" ? " ↑" : " ↓") : ""),
      ),
    );
  }

  function pager({ total }) {
    if (total <= PAGE) return undefined;
    const { offset } = asked;
    const last = Math.min(total, offset + PAGE);
    return h(
      "nav.pager",
      { "aria-label": "Pages" },
      h(
        "button",
        {
          type: "button",
          disabled: offset === 0,
          onclick: () => set({ offset: Math.max(0, offset - PAGE) }),
        },
        "Previous",
      ),
      h("span", {}, `${count(offset + 1)}–${count(last)} of ${count(total)}`),
      h(
        "button",
        { type: "button", disabled: last >= total, onclick: () => set({ offset: offset + PAGE }) },
        "Next",
      ),
    );
  }
}

function row(status, recent) {
  const { name, actualPerSecond: actual, capPerSecond: cap, waiting, limitedBy, hasCalls } = status;
  const held = badges(status);
  const cell = (label, tag, ...children) => h(tag, { "data-label": label }, ...children);
  return h(
    "tr",
    { "data-key": name },
    cell("Bucket", "td.name", h("a", { href: `#/bucket/${encodeURIComponent(name)}` }, name)),
    cell(
      "Rate of cap",
      "td",
      h(
        "div.rate",
        {},
        h(
          "span",
          {},
          h("b", {}, rate(actual)),
          h("span.muted", {}, cap === undefined ? "/s" : ` / ${rate(cap)} per s`),
        ),
        cap === undefined ? undefined : bar(actual / cap),
        hasCalls ? undefined : h("span.muted", {}, "no calls yet"),
      ),
    ),
    cell("Last 10 min", "td", spark(recent, cap)),
    cell(
      "Waiting",
      "td.num",
      waiting.total === 0 ? h("span.muted.nothing", {}, "0") : count(waiting.total),
    ),
    cell(
      "Oldest",
      "td.num",
      waiting.total === 0 ? h("span.muted.nothing", {}, "–") : duration(waiting.oldestMs),
    ),
    cell(
      "Held back by",
      "td",
      held.length > 0
        ? held
        : waiting.total > 0 && limitedBy !== undefined
          ? h("code", {}, limitedBy)
          : h("span.muted.nothing", {}, "–"),
    ),
    cell("Set by", "td", setBy(status)),
  );
}

function tiles(totals) {
  const {
    waiting,
    oldestMs,
    actualPerSecond: actual,
    capPerSecond: cap,
    cooling,
    paused,
    away,
    overrides,
  } = totals;
  const held = cooling + paused + away;
  const kinds = [
    paused > 0 && `${paused} paused`,
    cooling > 0 && `${cooling} cooling`,
    away > 0 && `${away} away`,
  ].filter(Boolean);
  const share = cap === 0 ? undefined : actual / cap;
  return h(
    "div.tiles",
    {},
    tile("Waiting", count(waiting), {
      note: waiting === 0 ? "nothing waits" : "callers, in all processes",
    }),
    tile("Oldest wait", waiting === 0 ? "–" : duration(oldestMs), {
      note: "of those that wait now",
    }),
    tile("Share of the caps", share === undefined ? "–" : `${Math.round(share * 100)} %`, {
      meter: share ?? 0,
      note:
        share === undefined
          ? "no bucket has a rate"
          : `${rate(actual)} of ${rate(cap)} calls a second`,
    }),
    tile("Held back", count(held), {
      tone: held > 0 ? "warn" : undefined,
      note: held === 0 ? "no pause, no cooldown" : kinds.join(", "),
    }),
    tile("Set by hand", count(overrides), {
      note: overrides === 0 ? "no bucket has an override" : plural(overrides, "override"),
    }),
  );
}
