/** What was changed, of buckets, queues and endpoints. */
import { ask } from "./api.js";
import { h } from "./dom.js";
import { UNDOABLE } from "./forms.js";
import { count, duration, plural } from "./format.js";
import { isOn, nothing, table, when } from "./parts.js";
import { toast } from "./toast.js";

/** A table of them; `isOfAll` says of what each is, `redraw` that some may be taken back. */
export function changesTable(changes, empty, { isOfAll = false, redraw } = {}) {
  const rows = changes.map((change) => [
    when(change.atMs),
    ...(isOfAll ? [whose(change)] : []),
    change.by,
    [change.action, " ", fate(change), back(change, redraw)],
    change.queue === undefined ? effect(change) : factsOf(change),
    change.reason ?? nothing(),
  ]);
  return table(
    "Changes",
    ["When", ...(isOfAll ? ["Of"] : []), "Who", "Did", "What", "Why"],
    rows,
    empty,
    "cards",
  );
}

function whose({ bucket, queue, endpoint }) {
  const link = (path, text) =>
    h("a", { href: `#/${path.map(encodeURIComponent).join("/")}` }, text);
  if (bucket !== undefined) return link(["bucket", bucket], bucket);
  if (endpoint === undefined) return link(["queue", queue], queue);
  const { tenant, id } = endpoint;
  if (id === undefined) return `${queue}: all of ${tenant}`;
  return link(["endpoint", queue, tenant, id], `${tenant} / ${id}`);
}

const fate = ({ failed, undoneBy }) =>
  failed !== undefined
    ? h("span.badge.warn", { title: failed }, "not made")
    : undoneBy === undefined
      ? undefined
      : h("span.badge.quiet", {}, "undone");

function back({ id, queue, endpoint, action, failed, undoneBy }, redraw) {
  const isOpen = queue !== undefined && failed === undefined && undoneBy === undefined;
  if (redraw === undefined || !isOpen || !UNDOABLE.has(action)) return undefined;
  const path = `api/v1/${endpoint === undefined ? "queues" : "endpoints"}/${encodeURIComponent(queue)}/undo`;
  const onclick = async () => {
    try {
      await ask(path, { method: "POST", body: { id } });
      toast("The change was taken back.");
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
    : ` of ${typeof given === "string" ? given : JSON.stringify(given)}`;
};
const forTime = ({ forMs }) => (forMs === undefined ? "" : ` for ${duration(forMs)}`);
const pause = ({ pausedForMs }) =>
  isOn(pausedForMs)
    ? `paused${pausedForMs === "forever" ? "" : ` ${duration(pausedForMs)}`}`
    : "running";
const fromTo = (from, to) => [h("code", {}, from), " → ", h("code", {}, to)];

function effect(change) {
  const { subject, before, after } = change;
  const what = subject === "pause" ? [before, after].map(pause) : [before.policy, after.policy];
  return h("span", {}, fromTo(...what), `${ofKey(change)}${forTime(change)}`);
}

/** What a change of a queue or an endpoint did. */
function factsOf(change) {
  const { before = {}, after = {}, filter, jobs } = change;
  const about = `${ofKey(change)}${forTime(change)}`;
  if ("pausedForMs" in after) {
    const was = "pausedForMs" in before ? pause(before) : "unknown";
    return h("span", {}, fromTo(was, pause(after)), ofKey(change));
  }
  const meant =
    filter === undefined
      ? ""
      : ` (${Object.entries(filter)
          .map(([name, value]) => `${name} ${value}`)
          .join(", ")})`;
  if (jobs !== undefined) return h("span", {}, plural(jobs, "job"), about, meant);
  const names = Object.keys({ ...before, ...after }).filter((name) => before[name] !== after[name]);
  if (names.length === 0)
    return about === "" && meant === "" ? nothing() : `${about}${meant}`.trim();
  return h(
    "span",
    {},
    names.map((name, at) => [
      at === 0 ? "" : ", ",
      `${name} `,
      fromTo(text(before[name]), text(after[name])),
    ]),
    about,
    meant,
  );
}

const text = (value) =>
  value === undefined ? "–" : typeof value === "number" ? count(value) : String(value);
