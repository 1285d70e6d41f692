import { ask } from "../parts/api.js";
import { changesTable } from "../parts/changes.js";
import { h } from "../parts/dom.js";
import { pager } from "../parts/parts.js";

export function logView({ redraw, stay, mayAct }) {
  const pages = stay("log", { before: [] });
  const go = (before) => {
    pages.before = before;
    redraw();
  };
  return {
    title: "Changes",
    load(signal) {
      const before = pages.before.at(-1);
      return ask(
        `api/v1/changes?${new URLSearchParams({ limit: 50, ...(before && { before }) })}`,
        { signal },
      );
    },
    draw({ changes, next }) {
      return [
        h("h1", {}, "Changes"),
        h("p.muted", {}, "Every change that operators and rules files made, the newest first."),
        h(
          "section.panel",
          { "aria-label": "Changes" },
          changesTable(changes, "No changes yet.", {
            isOfAll: true,
            redraw: mayAct() ? redraw : undefined,
          }),
        ),
        pager(pages.before, next, go, ["Newer", "Older"]),
      ];
    },
  };
}
