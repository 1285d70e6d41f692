/** A short message after a change, with a button to undo it. */
import { h } from "./dom.js";

const SHOWN_MS = 12_000;
let hiding;

export function toast(text, action) {
  const place = document.getElementById("toast");
  clearTimeout(hiding);
  const hide = () => (place.textContent = "");
  const run = async () => {
    hide();
    try {
      await action.run();
      toast("The change was undone.");
    } catch (error) {
      toast(error.message);
    }
  };
  place.replaceChildren(
    h(
      "div.toast",
      {},
      h("span", {}, text),
      action !== undefined && h("button", { type: "button", onclick: run }, action.label),
      h("button.plain", { type: "button", "aria-label": "Hide", onclick: hide }, "×"),
    ),
  );
  hiding = setTimeout(hide, SHOWN_MS);
}
