import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { ago, count, plural } from "../parts/format.js";
import { badge, bar, countOrDash, link, nothing, table, tablePanel } from "../parts/parts.js";

export function workersView() {
  return {
    title: "Workers",
    async load(signal) {
      const [{ replicas }, { workers }] = await Promise.all([
        ask("api/v1/overview", { signal }),
        ask("api/v1/workers", { signal }),
      ]);
      return { replicas, workers };
    },
    draw({ replicas, workers }) {
      const versions = new Set(replicas.map(({ version }) => version)).size;
      const byReplica = new Map(replicas.map((replica) => [replica.replica, replica]));
      const alive = workers.filter(({ state }) => state !== "silent");
      return [
        h("h1", {}, "Workers"),
        h(
          "p.muted",
          {},
          `${plural(alive.length, "worker")} in ${plural(replicas.length, "process", "processes")}${versions > 1 ? ` of ${versions} versions` : ""}. A process disappears 90 seconds after its last report.`,
        ),
        h(
          "section.panel",
          { "aria-label": "Workers" },
          table(
            "Workers",
            ["Queue", "Process", "#Uptime", "Running jobs", "#Waiting for a slot", "State"],
            workers.map((worker) => workerRow(worker, byReplica.get(worker.replica))),
            "No worker is running. Jobs wait until one starts.",
          ),
        ),
        tablePanel(
          "Processes",
          ["Process", "Version", "#Uptime", "#Workers", "#Running jobs", "#Last report"],
          replicas.map((replica) => processRow(replica, alive)),
          "No process has reported in the last 90 seconds.",
        ),
      ];
    },
  };
}

const since = (ms) => ago(ms).replace(" ago", "");
const processOf = (replica) =>
  replica === undefined
    ? nothing()
    : h("span", {}, replica.host, h("span.muted", {}, ` · ${replica.pid}`));

/** A program in any language, which takes its jobs from a server. */
const clientOf = (client, replica) =>
  h(
    "span",
    {},
    client,
    h(
      "span.muted",
      {},
      replica === undefined ? " · over HTTP" : ` · over HTTP from ${replica.host}`,
    ),
  );

function workerRow(worker, replica) {
  const { queue, client, sinceMs, running, waiting, concurrency, state, paused } = worker;
  const states = [
    state === "closing" && badge("warn", "closing"),
    state === "silent" && badge("danger", "no sign of life for 10 s"),
    paused && badge("danger", "queue paused"),
    state === "running" && !paused && badge("quiet", "running"),
  ];
  return [
    link(queue, "queue", queue),
    client === undefined ? processOf(replica) : clientOf(client, replica),
    since(sinceMs),
    h(
      "div.rate",
      {},
      h("span", {}, h("b", {}, count(running)), h("span.muted", {}, ` of ${count(concurrency)}`)),
      bar(running / concurrency),
    ),
    countOrDash(waiting),
    h("span", {}, states),
  ];
}

function processRow(replica, workers) {
  const own = workers.filter((worker) => worker.replica === replica.replica);
  const running = own.reduce((sum, worker) => sum + worker.running, 0);
  return [
    processOf(replica),
    replica.version,
    since(replica.startedAtMs),
    countOrDash(own.length),
    countOrDash(running),
    ago(replica.seenAtMs),
  ];
}
