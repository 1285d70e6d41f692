/** The dialogs of the operations. Each shows the effect of the operation before it runs. */
import { ask } from "./api.js";
import { h } from "./dom.js";
import { FORMS } from "./forms.js";
import { toast } from "./toast.js";

const TIMES = [
  ["Until changed", ""],
  ["15 minutes", "900000"],
  ["1 hour", "3600000"],
  ["4 hours", "14400000"],
  ["1 day", "86400000"],
];

/**
 * Opens a dialog. If `submit` fails, the dialog stays open and shows the error. `trial` adds a button with its `label`;
 * its `run` returns what the dialog then shows.
 */
function open({ title, fields, preview, trial, confirm, submit, danger = false }) {
  const problem = h("p.problem", { role: "alert" });
  const effect = h("p.preview", { "aria-live": "polite" });
  const start = h("button.small", { type: "button", onclick: tryOut }, trial?.label);
  const tried = h("div", { "aria-live": "polite" });
  const button = h(danger ? "button.danger" : "button.primary", { type: "submit" }, confirm);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "dialog-title" }, title),
    fields,
    effect,
    trial !== undefined && h("div.trial", {}, start, tried),
    problem,
    h(
      "div.actions",
      {},
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      button,
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
  const values = () => Object.fromEntries(new FormData(form));
  let previewing = new AbortController();
  async function tryOut() {
    if (!form.reportValidity()) return;
    const { signal } = previewing;
    const show = (...parts) => !signal.aborted && tried.replaceChildren(...parts);
    show(h("p.muted", {}, "The simulation runs. It takes up to ten seconds."));
    start.disabled = true;
    try {
      show(...(await trial.run(values(), signal)));
    } catch (error) {
      show(h("p.problem", {}, textOf(error)));
    }
    start.disabled = false;
  }
  async function update() {
    previewing.abort();
    previewing = new AbortController();
    const { signal } = previewing;
    tried.replaceChildren();
    try {
      const text = await preview(values(), { isValid: form.checkValidity(), signal });
      if (!signal.aborted) effect.textContent = text;
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
      await submit(values());
      dialog.close();
    } catch (error) {
      problem.textContent = textOf(error);
    }
    button.disabled = false;
  };
  const opener = document.activeElement;
  dialog.addEventListener("close", () => {
    previewing.abort();
    dialog.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(dialog);
  void update();
  dialog.showModal();
  dialog.querySelector("input[autofocus]")?.select();
}

function textOf({ code, option, remedy, message }) {
  if (code === "ERR_CHANGED") {
    return "Another change came first. Close this dialog, check the new values, and try again.";
  }
  return remedy ? `${option}: ${remedy}` : message;
}

export const field = (label, input, hint) =>
  h(
    "label.field",
    {},
    h("span", {}, label),
    input,
    hint !== undefined && h("small.muted", {}, hint),
  );
const FIELDS = {
  rate: (value) =>
    field(
      "Rate",
      h("input", {
        name: "rate",
        value,
        required: true,
        autofocus: true,
        autocomplete: "off",
        placeholder: "20/s",
        pattern: "\\d+(\\.\\d+)?/\\d*(ms|s|min|h|d)",
      }),
      "For example 20/s or 600/min. It replaces every limit except those per key.",
    ),
  forMs: (chosen) =>
    field(
      "Duration",
      h(
        "select",
        { name: "forMs" },
        TIMES.map(([label, value]) =>
          h("option", { value, selected: value === String(chosen) }, label),
        ),
      ),
    ),
  amounts: () =>
    field(
      "Amount",
      h("input", {
        name: "amounts",
        required: true,
        autofocus: true,
        autocomplete: "off",
        placeholder: "usd=50",
        pattern: "[A-Za-z][\\w\\-]*=\\d+(\\.\\d+)?",
      }),
      "The unit and the amount. The grant ends with the period.",
    ),
  reason: () =>
    field(
      "Reason",
      h("input", {
        name: "reason",
        maxlength: 500,
        autocomplete: "off",
        placeholder: "429s since 3:02",
      }),
      "The list of changes shows it with your name.",
    ),
};

const fill = (text, words) => text.replaceAll(/\{(\w+)\}/g, (_, name) => words[name]);

const amountsOf = (text) => {
  const [unit, amount] = text.split("=");
  return { [unit]: Number(amount) };
};

/** The body of a request, without empty fields. */
const bodyOf = ({ rate, forMs, reason, amounts }) => ({
  ...(amounts ? { amounts: amountsOf(amounts) } : {}),
  ...(rate ? { policy: { rate } } : {}),
  ...(forMs ? { forMs: Number(forMs) } : {}),
  ...(reason ? { reason } : {}),
});

/**
 * Opens the form of an operation on the target at `path`, with `values` in its fields. The request also contains `body`.
 * `words` fill the placeholders of the texts. `preview` returns the effect of the current values as a sentence, and
 * `trial` tries them. Undo runs the action `inverse`; without one, it undoes the change with this generation.
 */
export function openForm(
  name,
  { path, inverse, body, words, preview, trial, redraw, values = {} },
) {
  const { title, fields, confirm, done, danger, action, undoable } = FORMS[name];
  open({
    title: fill(title, words()),
    danger,
    fields: fields.map((field) => FIELDS[field](values[field])),
    preview,
    trial,
    confirm,
    async submit(given) {
      const sent = { ...bodyOf(given), ...body };
      const answer = await ask(`${path}/${action}`, { method: "POST", body: sent });
      redraw();
      const generation = answer.status?.generation ?? answer.generation;
      const [undo, undoBody] = inverse === undefined ? ["undo", { generation }] : [inverse, {}];
      const takeBack = async () => {
        await ask(`${path}/${undo}`, { method: "POST", body: undoBody });
        redraw();
      };
      // Without a generation, undo could undo a newer change by someone else.
      const canUndo = inverse !== undefined || (undoable && generation !== undefined);
      const text = fill(done, { ...given, ...words(answer) });
      toast(text, canUndo ? { label: "Undo", run: takeBack } : undefined);
    },
  });
}
