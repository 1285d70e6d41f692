import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { count, duration, rate } from "../parts/format.js";
import { badge, link, nothing, pager, table, tablePanel } from "../parts/parts.js";

const HEADS = [
  "Queue",
  "#Queued jobs",
  "#Longest wait",
  "#Unexplained delay",
  "#Empty in",
  "#Workers",
  "#Done per second",
  "#Dead letters",
];

const OUTBOX_HEADS = [
  "Outbox",
  "#Pending rows",
  "#Oldest",
  "#Failed rows",
  "#Moved rows",
  "#Last report",
];
/** Relays report every 5 to 30 seconds. */
const SILENT_MS = 60_000;

export function queuesView({ redraw, stay }) {
  const pages = stay("queues", { after: [] });
  const go = (after) => {
    pages.after = after;
    redraw();
  };
  return {
    title: "Queues",
    async load(signal) {
      const after = pages.after.at(-1);
      const [page, { outboxes }] = await Promise.all([
        ask(`api/v1/queues?${new URLSearchParams(after && { after })}`, { signal }),
        ask("api/v1/outboxes", { signal }),
      ]);
      return { ...page, outboxes };
    },
    draw({ queues, next, outboxes }) {
      return [
        h("h1", {}, "Queues"),
        h(
          "section.panel",
          { "aria-label": "Queues" },
          table("Queues", HEADS, queues.map(row), "No process has opened a queue yet."),
        ),
        pager(pages.after, next, go),
        outboxes.length > 0 &&
          tablePanel("Outboxes", OUTBOX_HEADS, outboxes.map(outboxRow), "No outbox."),
      ];
    },
  };
}

function row({ name, status, unreachable }) {
  const queue = link(name, "queue", name);
  if (status === undefined)
    return [queue, badge("warn", `unreachable: ${unreachable}`), ...Array(6).fill("")];
  const { jobs, oldest, workers, workersWanted, donePerSecond } = status;
  return [
    queue,
    count(jobs.waiting),
    oldest === undefined ? nothing() : duration(oldest.waitingMs),
    unexplained(status),
    emptyIn(status),
    h(
      "span",
      {},
      count(workers),
      workersWanted > workers && h("span.muted", {}, ` of ${count(workersWanted)} needed`),
    ),
    rate(donePerSecond),
    jobs.failed === 0 ? nothing() : badge("warn", count(jobs.failed)),
  ];
}

function outboxRow({ name, pending, oldestMs, failed, moved, reportedAgoMs }) {
  const reported = `${duration(reportedAgoMs)} ago`;
  return [
    h("code", {}, name),
    count(pending),
    pending === 0 ? nothing() : duration(oldestMs),
    failed === 0 ? nothing() : badge("warn", count(failed)),
    count(moved),
    reportedAgoMs > SILENT_MS
      ? badge("danger", `no relay for ${duration(reportedAgoMs)}`)
      : reported,
  ];
}

/** The part of the wait that no limit, pause or turn explains. Above 0 it is an alarm. */
function unexplained({ unexplainedMs }) {
  return unexplainedMs === 0 ? nothing() : badge("danger", duration(unexplainedMs));
}

function emptyIn({ jobs, emptyInMs, reason }) {
  if (jobs.waiting === 0) return nothing();
  return emptyInMs === undefined ? h("span.muted", {}, reason ?? "unknown") : duration(emptyInMs);
}
