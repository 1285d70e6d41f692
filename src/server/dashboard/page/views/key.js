/** One key of a bucket, or one member of a pool: why its calls wait, and the budget of each of its levels. */
import { ask, bucketPath } from "../parts/api.js";
import { budgetsPanel, grantEffect } from "../parts/budgets.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { button, crumb, link, pageHead, panel } from "../parts/parts.js";

export function keyView({ kind, name, names, redraw, mayAct }) {
  const path = bucketPath(name);
  const title = names.join(" / ");

  return {
    title: `${title} · ${name}`,
    load(signal) {
      const query = new URLSearchParams(names.map((each) => [kind, each]));
      return ask(`${path}/why?${query}`, { signal });
    },
    draw({ reasons, budgets = [] }) {
      return [
        crumb("#/", "Buckets"),
        pageHead(
          title,
          [kind === "member" ? "A member of " : "A key of ", link(name, "bucket", name)],
          actions(budgets),
        ),
        panel(
          "Why calls wait",
          h(
            "ul.reasons",
            {},
            reasons.map((text) => h("li", {}, text)),
          ),
        ),
        budgetsPanel("Budgets", budgets, {
          bucket: name,
          owners: true,
          empty: "It has no budget.",
        }),
      ];
    },
  };

  function actions(budgets) {
    if (!mayAct()) return undefined;
    const words = () => ({ name: title });
    const body = { [kind]: names.length > 1 ? names : names[0] };
    const form = { path, redraw, body, words, preview: grantEffect };
    const isOwn = ({ key, member }) => key !== undefined || member !== undefined;
    return [budgets.some(isOwn) && button("Grant", () => openForm("bucket.grant", form))];
  }
}
