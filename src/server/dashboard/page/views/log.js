/** What was changed by hand, of all buckets, queues and endpoints. */
import { ask } from "../parts/api.js";
import { changesTable } from "../parts/changes.js";
import { h } from "../parts/dom.js";
import { pager } from "../parts/parts.js";

export function logView({ redraw, stay, mayAct }) {
  const asked = stay("log", { before: [] });
  const go = (before) => {
    asked.before = before;
    redraw();
  };
  return {
    title: "Changes",
    load(signal) {
      const before = asked.before.at(-1);
      return ask(
        `api/v1/changes?${new URLSearchParams({ limit: 50, ...(before && { before }) })}`,
        { signal },
      );
    },
    draw({ changes, next }) {
      return [
        h("h1", {}, "Changes"),
        h(
          "p.muted",
          {},
          "What was changed of buckets, queues and endpoints, by whom and why; the newest first.",
        ),
        h(
          "section.panel",
          { "aria-label": "Changes" },
          changesTable(changes, "Nothing was changed by hand.", {
            isOfAll: true,
            redraw: mayAct() ? redraw : undefined,
          }),
        ),
        pager(asked.before, next, go, ["Newer", "Older"]),
      ];
    },
  };
}
