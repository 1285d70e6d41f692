/** What changes a bucket: each says what it would do, asks, and can be undone. */
import { ask } from "./api.js";
import { h } from "./dom.js";
import { count, duration, rate } from "./format.js";
import { toast } from "./toast.js";

const TIMES = [
  ["Until it is changed", ""],
  ["15 minutes", "900000"],
  ["1 hour", "3600000"],
  ["4 hours", "14400000"],
  ["1 day", "86400000"],
];

/**
 * Opens a dialog. `preview` says what `make` would do with what is given so far; `make` gets what was given, and a problem
 * of it is shown in place.
 */
export function open({ title, fields, preview, confirm, make, danger = false }) {
  const problem = h("p.problem", { role: "alert" });
  const effect = h("p.preview", { "aria-live": "polite" });
  const button = h(danger ? "button.danger" : "button.primary", { type: "submit" }, confirm);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    fields,
    effect,
    problem,
    h(
      "div.actions",
      {},
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      button,
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  const given = () => Object.fromEntries(new FormData(form));
  let asking = new AbortController();
  async function update() {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const said = await preview(given(), { isValid: form.checkValidity(), signal });
      if (!signal.aborted) effect.textContent = said;
    } catch (error) {
      if (!signal.aborted) effect.textContent = textOf(error);
    }
  }
  form.oninput = update;
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      await make(given());
      dialog.close();
    } catch (error) {
      problem.textContent = textOf(error);
    }
    button.disabled = false;
  };
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    asking.abort();
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  void update();
  dialog.showModal();
}

function textOf({ code, option, remedy, message }) {
  if (code === "ERR_CHANGED") {
    return "Somebody else changed it meanwhile. Close this, look again, and repeat it if it still fits.";
  }
  return remedy ? `${option}: ${remedy}` : message;
}

export const field = (label, input, hint) =>
  h(
    "label.field",
    {},
    h("span", {}, label),
    input,
    hint === undefined ? undefined : h("small.muted", {}, hint),
  );
export const forField = () =>
  field(
    "For how long",
    h(
      "select",
      { name: "forMs" },
      TIMES.map(([label, value]) => h("option", { value }, label)),
    ),
  );
export const reasonField = () =>
  field(
    "Why",
    h("input", {
      name: "reason",
      maxlength: 500,
      autocomplete: "off",
      placeholder: "429s since 3:02",
    }),
    "Others see it beside your name.",
  );

const options = ({ forMs, reason }, { generation }) => ({
  ...(forMs ? { forMs: Number(forMs) } : {}),
  ...(reason ? { reason } : {}),
  generation,
});

async function send({ path, redraw }, action, body, said) {
  const { status } = await ask(`${path}/${action}`, { method: "POST", body });
  redraw();
  const back = async () => {
    await ask(`${path}/undo`, { method: "POST", body: { generation: status.generation } });
    redraw();
  };
  toast(said, action === "undo" ? undefined : { label: "Undo", run: back });
}

export function changeRate(parts) {
  const { status } = parts;
  open({
    title: `Change the rate of ${status.name}`,
    fields: [
      field(
        "Rate",
        h("input", {
          name: "rate",
          required: true,
          autofocus: true,
          autocomplete: "off",
          placeholder: "20/s",
          pattern: "\\d+(\\.\\d+)?/\\d*(ms|s|min|h|d)",
        }),
        "Such as 20/s or 600/min. It replaces all limits that the keys share.",
      ),
      forField(),
      reasonField(),
    ],
    preview: ({ rate: text }, { isValid, signal }) =>
      isValid ? rateEffect(parts, { rate: text }, signal) : `In force: ${status.policy}.`,
    confirm: "Put it in force",
    make: (given) =>
      send(
        parts,
        "configure",
        { policy: { rate: given.rate }, ...options(given, status) },
        `${status.name} is at ${given.rate} now.`,
      ),
  });
}

/** What the server says that a change would do. */
const previewOf = ({ path }, body, signal) =>
  ask(`${path}/preview`, { method: "POST", body, signal });

async function rateEffect(parts, policy, signal) {
  const { now, after } = await previewOf(parts, { policy }, signal);
  const change =
    now.capPerSecond === undefined
      ? `A cap of ${rate(after.capPerSecond)} calls a second, where there is none.`
      : `From ${rate(now.capPerSecond)} to ${rate(after.capPerSecond)} calls a second.`;
  const { actualPerSecond: actual } = parts.status;
  const tight =
    actual > after.capPerSecond ? ` ${rate(actual)} a second are called now: calls will wait.` : "";
  return `${change} ${drain({ now, after })}${tight}`;
}

function drain({ now, after }) {
  if (now.waiting === 0) return "Nothing waits now.";
  const those = `The ${count(now.waiting)} that wait`;
  if (after.goneInMs === "forever") return `${those} do not start before it is resumed.`;
  // Without a rate that all calls share, nobody knows.
  if (after.capPerSecond === undefined) return `${those} start as their limits allow.`;
  const isOther = now.capPerSecond !== undefined && now.goneInMs !== after.goneInMs;
  const before = now.goneInMs === "forever" ? "never" : duration(now.goneInMs);
  const instead = isOther ? ` instead of ${before}` : "";
  return `${those} have started within ${duration(after.goneInMs)}${instead}, if no more come.`;
}

export function pause(parts) {
  const { status } = parts;
  open({
    title: `Pause ${status.name}`,
    danger: true,
    fields: [forField(), reasonField()],
    async preview({ forMs }, { signal }) {
      const pausedForMs = forMs ? Number(forMs) : "forever";
      const end = forMs ? `for ${duration(pausedForMs)}` : "until it is resumed";
      const now = `${rate(status.actualPerSecond)} a second are called now; they will wait.`;
      const effect = drain(await previewOf(parts, { pausedForMs }, signal));
      return `No call starts in any process ${end}. ${now} ${effect}`;
    },
    confirm: "Pause all calls",
    make: (given) => send(parts, "pause", options(given, status), `${status.name} is paused.`),
  });
}

export function resume(parts) {
  const { status } = parts;
  open({
    title: `Resume ${status.name}`,
    fields: [reasonField()],
    async preview(_given, { signal }) {
      const { capPerSecond: cap } = status;
      const most = cap === undefined ? "what its limits allow" : `${rate(cap)} a second`;
      const effect = drain(await previewOf(parts, { pausedForMs: 0 }, signal));
      return `Calls start again, at up to ${most}. ${effect}`;
    },
    confirm: "Resume",
    make: (given) => send(parts, "resume", options(given, status), `${status.name} runs again.`),
  });
}

export function undo(parts) {
  const { status, change } = parts;
  const { before } = change;
  const back =
    change.subject === "policy"
      ? `${before.policy} is in force again`
      : before.pausedForMs === 0
        ? "calls start again"
        : "the pause before is in force again";
  open({
    title: `Undo the last change of ${status.name}`,
    fields: [reasonField()],
    preview: () => `Takes back “${change.action}” by ${change.by}: ${back}.`,
    confirm: "Undo it",
    make: ({ reason }) =>
      send(
        parts,
        "undo",
        { id: change.id, ...(reason ? { reason } : {}) },
        "The change was taken back.",
      ),
  });
}
