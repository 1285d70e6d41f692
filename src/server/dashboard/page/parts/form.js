/** The dialogs of the operations. Each says what it would do, asks, and can be undone where that is possible. */
import { ask } from "./api.js";
import { h } from "./dom.js";
import { FORMS } from "./forms.js";
import { toast } from "./toast.js";

const TIMES = [
  ["Until it is changed", ""],
  ["15 minutes", "900000"],
  ["1 hour", "3600000"],
  ["4 hours", "14400000"],
  ["1 day", "86400000"],
];

/** Opens a dialog. A problem of `make` is shown in place. */
function open({ title, fields, preview, confirm, make, danger = false }) {
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
    return "It has changed since you opened this dialog. Close it, look again, and repeat the change if it still fits.";
  }
  return remedy ? `${option}: ${remedy}` : message;
}

const field = (label, input, hint) =>
  h(
    "label.field",
    {},
    h("span", {}, label),
    input,
    hint === undefined ? undefined : h("small.muted", {}, hint),
  );
const FIELDS = {
  rate: () =>
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
  forMs: () =>
    field(
      "For how long",
      h(
        "select",
        { name: "forMs" },
        TIMES.map(([label, value]) => h("option", { value }, label)),
      ),
    ),
  reason: () =>
    field(
      "Why",
      h("input", {
        name: "reason",
        maxlength: 500,
        autocomplete: "off",
        placeholder: "429s since 3:02",
      }),
      "Others see it beside your name.",
    ),
};

const fill = (text, words) => text.replaceAll(/\{(\w+)\}/g, (_, name) => words[name]);

/** The body of a request: times as numbers, and without what was left empty. */
const bodyOf = ({ rate, forMs, reason }) => ({
  ...(rate ? { policy: { rate } } : {}),
  ...(forMs ? { forMs: Number(forMs) } : {}),
  ...(reason ? { reason } : {}),
});

/**
 * Opens the form of an operation. `path` is that of its target. `body` is sent beside the fields, and `words` fill the
 * texts. `preview` says what the operation would do with the values so far. Undo calls `inverse`, the action that
 * reverses this one, or takes the change of this generation back.
 */
export function openForm(name, { path, inverse, body, words, preview, redraw }) {
  const { title, fields, confirm, done, danger, action, undoable } = FORMS[name];
  open({
    title: fill(title, words()),
    danger,
    fields: fields.map((field) => FIELDS[field]()),
    preview,
    confirm,
    async make(given) {
      const sent = { ...bodyOf(given), ...body };
      const answer = await ask(`${path}/${action}`, { method: "POST", body: sent });
      redraw();
      const generation = answer.status?.generation ?? answer.generation;
      const [undo, undoBody] = inverse === undefined ? ["undo", { generation }] : [inverse, {}];
      const back = async () => {
        await ask(`${path}/${undo}`, { method: "POST", body: undoBody });
        redraw();
      };
      // Without a generation, undo could take back a newer change of a colleague.
      const canUndo = inverse !== undefined || (undoable && generation !== undefined);
      const text = fill(done, { ...given, ...words(answer) });
      toast(text, canUndo ? { label: "Undo", run: back } : undefined);
    },
  });
}
