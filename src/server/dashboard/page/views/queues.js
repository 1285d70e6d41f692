/** All queues: what waits, for how long, and whether a limit is the reason. */
import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { count, duration, rate } from "../parts/format.js";
import { badge, nothing, pager, table } from "../parts/parts.js";

const HEADS = [
  "Queue",
  "#Waiting",
  "#Oldest due",
  "#Unexplained",
  "#Gone in",
  "#Workers",
  "#Done a second",
  "#Dead letters",
];

export function queuesView({ redraw, stay }) {
  const asked = stay("queues", { after: [] });
  const go = (after) => {
    asked.after = after;
    redraw();
  };
  return {
    title: "Queues",
    load(signal) {
      const after = asked.after.at(-1);
      return ask(`api/v1/queues?${new URLSearchParams(after && { after })}`, { signal });
    },
    draw({ queues, next }) {
      return [
        h("h1", {}, "Queues"),
        h(
          "section.panel",
          { "aria-label": "Queues" },
          table("Queues", HEADS, queues.map(row), "No process has a queue.", "cards"),
        ),
        pager(asked.after, next, go),
      ];
    },
  };
}

function row({ name, status, unreachable }) {
  const link = h("a", { href: `#/queue/${encodeURIComponent(name)}` }, name);
  if (status === undefined)
    return [link, badge("warn", `not seen: ${unreachable}`), ...Array(6).fill("")];
  const { jobs, oldest, workers, workersWanted, donePerSecond } = status;
  return [
    link,
    count(jobs.waiting),
    oldest === undefined ? nothing() : duration(oldest.waitingMs),
    unexplained(status),
    goneIn(status),
    [
      count(workers),
      workersWanted > workers ? h("span.muted", {}, ` of ${count(workersWanted)} wanted`) : "",
    ],
    rate(donePerSecond),
    jobs.failed === 0 ? nothing() : badge("warn", count(jobs.failed)),
  ];
}

/** The figure that is an alarm: it is 0 while a limit is the reason. */
export function unexplained({ unexplainedMs }) {
  return unexplainedMs === 0 ? nothing() : badge("danger", duration(unexplainedMs));
}

export function goneIn({ jobs, goneInMs, reason }) {
  if (jobs.waiting === 0) return nothing();
  return goneInMs === undefined ? h("span.muted", {}, reason ?? "unknown") : duration(goneInMs);
}
