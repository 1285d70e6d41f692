import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { count, duration, plural } from "../parts/format.js";
import {
  badge,
  button,
  crumb,
  jobState,
  keyOf,
  link,
  notice,
  pageHead,
  panel,
  when,
  whyText,
} from "../parts/parts.js";

export function jobView({ queue, id, redraw, mayAct }) {
  const ofQueue = `api/v1/queues/${encodeURIComponent(queue)}`;
  const path = `${ofQueue}/jobs/${encodeURIComponent(id)}`;

  return {
    title: id,
    async load(signal) {
      const [looked, flow] = await Promise.all([
        ask(path, { signal }),
        ask(`${path}/flow`, { signal }),
      ]);
      return { ...looked, ...flow };
    },
    draw({ job, state, why, eta, flow, ended, children }) {
      return [
        crumb(`#/queue/${encodeURIComponent(queue)}`, queue),
        pageHead(
          id,
          ["job of queue ", link(queue, "queue", queue), jobState(state)],
          mayAct() ? actions(state) : undefined,
        ),
        why !== undefined && notice("info", `The job waits: ${whyText(why)}.`),
        panel("Facts", facts({ job, why, eta })),
        panel("Flow", flowOf({ flow, ended, children })),
      ];
    },
  };

  function actions(state) {
    const words = ({ cancelled } = {}) => ({
      what: id,
      outcome: cancelled ? "was cancelled" : "has ended, or is being cancelled already",
    });
    if (state === "failed") {
      const preview = () =>
        "The job will run again from the first attempt, with a new slot. Anything done before may happen twice. You cannot undo this.";
      const said = ({ replayed } = { replayed: 0 }) => ({
        what: id,
        replayed: plural(replayed, "job"),
      });
      const form = { path: ofQueue, redraw, body: { id }, words: said, preview };
      return [button("Replay", () => openForm("queue.replay", form))];
    }
    if (!UNFINISHED.has(state)) return [];
    const preview = () =>
      state === "active"
        ? "The handler's signal is aborted, and the job becomes a dead letter. You cannot undo this."
        : "The job will be removed, and its children follow it. You cannot undo this.";
    return [
      button("Cancel", () => openForm("job.cancel", { path, redraw, body: {}, words, preview })),
    ];
  }
}

const UNFINISHED = new Set(["waiting", "active", "delayed"]);

function facts({ job, why, eta }) {
  const { name, key, priority, attempts, attemptsMade } = job;
  const { enqueuedAtMs, dueAtMs, startedAtMs, endedAtMs, startByMs } = job;
  // The time of a job that waits for its parents is known once these have ended.
  const due = why?.waitsFor === "parents" ? undefined : dueAtMs;
  const times = { Enqueued: enqueuedAtMs, Due: due, Started: startedAtMs, Ended: endedAtMs };
  const known = [
    ["Name", name],
    ["Key", key && keyOf({ key })],
    ["Priority", priority],
    ["Attempts", `${count(attemptsMade)} of ${count(attempts)}`],
    ...Object.entries(times).map(([label, ms]) => [label, ms && when(ms)]),
    ["Starts by", startByMs && when(startByMs)],
    [
      "Starts in",
      eta && (eta.reason ?? `${duration(eta.startsInMs)}, after ${count(eta.position)} others`),
    ],
  ].filter(([, value]) => value !== undefined);
  return h(
    "dl.facts",
    {},
    known.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))),
  );
}

/** The flow from the parents at the top down to the children. */
function flowOf({ flow, ended, children }) {
  if (flow.parents.length + ended.first.length + children.first.length === 0) {
    return h("p.empty", {}, "The job belongs to no flow.");
  }
  return [
    h("h3", {}, "The job and the jobs that it waits for"),
    h("ul.tree", {}, step(flow)),
    linked("Parents that have ended", ended),
    linked("Jobs that wait for it", children),
  ];
}

function step({ queue, id, state, why, isBlocking, parents, more }) {
  // The parents of other steps are below them. A group that is still open blocks without parents.
  const isWaiting = why !== undefined && (isBlocking || why.waitsFor !== "parents");
  const below = [...parents.map(step), ...moreJobs(more)];
  return h(
    "li",
    {},
    h(
      `span.step${isBlocking ? ".blocks" : ""}`,
      {},
      jobLink({ queue, id }),
      jobState(state),
      isBlocking && badge("warn", "blocks"),
      isWaiting && h("span.muted", {}, whyText(why)),
    ),
    below.length > 0 && h("ul", {}, below),
  );
}

function linked(title, { first, more }) {
  if (first.length === 0) return undefined;
  const steps = first.map((job) =>
    h("li", {}, h("span.step", {}, jobLink(job), jobState(job.state))),
  );
  return [h("h3", {}, title), h("ul.tree", {}, steps, moreJobs(more))];
}

const moreJobs = (more) =>
  more > 0 ? [h("li", {}, h("span.step.muted", {}, `and ${count(more)} more`))] : [];

const jobLink = ({ queue, id }) =>
  h("span", {}, h("span.muted", {}, `${queue} / `), link(id, "job", queue, id));
