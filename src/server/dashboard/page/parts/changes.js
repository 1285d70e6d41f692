/** The changes of buckets, queues and endpoints. */
import { ask } from "./api.js";
import { h } from "./dom.js";
import { UNDOABLE } from "./forms.js";
import { count, duration, plural } from "./format.js";
import { isOn, link, nothing, table, when } from "./parts.js";
import { toast } from "./toast.js";

/** A table of changes. `isOfAll` adds a column for their targets, `redraw` adds buttons to undo them. */
export function changesTable(changes, empty, { isOfAll = false, redraw } = {}) {
  const rows = changes.map((change) => [
    when(change.atMs),
    ...(isOfAll ? [targetOf(change)] : []),
    change.by,
    [change.action, " ", fate(change), undoButton(change, redraw)],
    change.queue === undefined ? effect(change) : factsOf(change),
    change.reason ?? nothing(),
  ]);
  return table(
    "Changes",
    ["Time", ...(isOfAll ? ["Target"] : []), "By", "Action", "Change", "Reason"],
    rows,
    empty,
  );
}

function targetOf({ bucket, queue, endpoint }) {
  if (bucket !== undefined) return link(bucket, "bucket", bucket);
  if (endpoint === undefined) return link(queue, "queue", queue);
  const { tenant, id } = endpoint;
  if (id === undefined) return `${queue}: all endpoints of ${tenant}`;
  return link(`${tenant} / ${id}`, "endpoint", queue, tenant, id);
}

const fate = ({ failed, undoneBy }) =>
  failed !== undefined
    ? h("span.badge.warn", { title: failed }, "failed")
    : undoneBy !== undefined && h("span.badge.quiet", {}, "undone");

function undoButton({ id, queue, endpoint, action, failed, undoneBy }, redraw) {
  const isOpen = queue !== undefined && failed === undefined && undoneBy === undefined;
  if (redraw === undefined || !isOpen || !UNDOABLE.has(action)) return undefined;
  const path = `api/v1/${endpoint === undefined ? "queues" : "endpoints"}/${encodeURIComponent(queue)}/undo`;
  const onclick = async () => {
    try {
      await ask(path, { method: "POST", body: { id } });
      toast("The change was undone.");
    } catch (error) {
      toast(error.message);
    }
    redraw();
  };
  return h(
    "button.small",
    { type: "button", "aria-label": `Undo ${action} of ${queue}`, onclick },
    "Undo",
  );
}

const ofKey = ({ key, keys }) => {
  const given = Array.isArray(key) ? key.join(" / ") : (key ?? keys);
  return given === undefined
    ? ""
    : ` for key ${typeof given === "string" ? given : JSON.stringify(given)}`;
};
const forTime = ({ forMs }) => (forMs === undefined ? "" : ` for ${duration(forMs)}`);
const pause = ({ pausedForMs }) =>
  isOn(pausedForMs)
    ? `paused${pausedForMs === "forever" ? "" : ` ${duration(pausedForMs)}`}`
    : "running";
const fromTo = (from, to) => [h("code", {}, from), " → ", h("code", {}, to)];

const grants = ({ granted = {} }) =>
  Object.entries(granted)
    .map(([budget, amount]) => `${budget} +${amount}`)
    .join(", ") || "balances";

function effect(change) {
  const { subject, before, after } = change;
  const shown = { pause, budget: grants, policy: ({ policy }) => policy };
  const what = [before, after].map(shown[subject]);
  return h("span", {}, fromTo(...what), `${ofKey(change)}${forTime(change)}`);
}

/** The effect of a change of a queue or an endpoint. */
function factsOf(change) {
  const { before = {}, after = {}, filter, jobs } = change;
  const about = `${ofKey(change)}${forTime(change)}`;
  if ("pausedForMs" in after) {
    const was = "pausedForMs" in before ? pause(before) : "unknown";
    return h("span", {}, fromTo(was, pause(after)), ofKey(change));
  }
  const filtered =
    filter === undefined
      ? ""
      : ` (${Object.entries(filter)
          .map(([name, value]) => `${name} ${value}`)
          .join(", ")})`;
  if (jobs !== undefined) return h("span", {}, plural(jobs, "job"), about, filtered);
  const names = Object.keys({ ...before, ...after }).filter((name) => before[name] !== after[name]);
  if (names.length === 0)
    return about === "" && filtered === "" ? nothing() : `${about}${filtered}`.trim();
  return h(
    "span",
    {},
    names.map((name, at) => [
      at === 0 ? "" : ", ",
      `${name} `,
      fromTo(text(before[name]), text(after[name])),
    ]),
    about,
    filtered,
  );
}

const text = (value) =>
  value === undefined ? "–" : typeof value === "number" ? count(value) : String(value);
