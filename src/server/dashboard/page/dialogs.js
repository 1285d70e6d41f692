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

/** Opens a dialog; `make` gets what was given, and a problem of it is shown in place. */
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
  const update = () => (effect.textContent = preview(given()));
  form.oninput = update;
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      await make(given());
      dialog.close();
    } catch (error) {
      problem.textContent =
        error.code === "ERR_CHANGED"
          ? "Somebody else changed the bucket meanwhile. Close this, look again, and repeat it if it still fits."
          : error.remedy
            ? `${error.option}: ${error.remedy}`
            : error.message;
    }
    button.disabled = false;
  };
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  update();
  dialog.showModal();
}

const field = (label, input, hint) =>
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
const reasonField = () =>
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
    preview: (given) => previewOf(status, given),
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

const PERIODS = { ms: 0.001, s: 1, min: 60, h: 3_600, d: 86_400 };

/** What a rate would do, from what is known here: what waits now, and what is called now. */
function previewOf({ policy, capPerSecond, actualPerSecond, waiting }, { rate: text = "" }) {
  const [, many, periods, unit] = /^(\d+(?:\.\d+)?)\/(\d*)(ms|s|min|h|d)$/.exec(text.trim()) ?? [];
  if (many === undefined || Number(many) === 0) return `In force: ${policy}.`;
  const next = Number(many) / (Number(periods || 1) * PERIODS[unit]);
  const change =
    capPerSecond === undefined
      ? `A cap of ${rate(next)} calls a second, where there is none.`
      : `From ${rate(capPerSecond)} to ${rate(next)} calls a second.`;
  const drain =
    waiting.total === 0
      ? "Nothing waits now."
      : `The ${count(waiting.total)} that wait leave within ${duration((waiting.total / next) * 1_000)}${capPerSecond === undefined ? "" : ` instead of ${duration((waiting.total / capPerSecond) * 1_000)}`}, if no more come.`;
  const tight =
    actualPerSecond > next
      ? ` ${rate(actualPerSecond)} a second are called now: calls will wait.`
      : "";
  return `${change} ${drain}${tight}`;
}

export function pause(parts) {
  const { status } = parts;
  open({
    title: `Pause ${status.name}`,
    danger: true,
    fields: [forField(), reasonField()],
    preview: ({ forMs }) =>
      `No call starts in any process ${forMs ? `for ${duration(Number(forMs))}` : "until it is resumed"}. ${rate(status.actualPerSecond)} a second are called now; they will wait.`,
    confirm: "Pause all calls",
    make: (given) => send(parts, "pause", options(given, status), `${status.name} is paused.`),
  });
}

export function resume(parts) {
  const { status } = parts;
  open({
    title: `Resume ${status.name}`,
    fields: [reasonField()],
    preview: () =>
      `Calls start again, at up to ${status.capPerSecond === undefined ? "what its limits allow" : `${rate(status.capPerSecond)} a second`}; ${count(status.waiting.total)} wait.`,
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
