import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { ago, count, duration, outcomeText, plural, time } from "../parts/format.js";
import { badge, countOrDash, link, nothing, pager, searchBox, table } from "../parts/parts.js";

const PAGE = 25;

export function endpointsView({ redraw, stay }) {
  const query = stay("endpoints", { sender: undefined, tenant: "", pages: [] });

  function set(change) {
    Object.assign(query, { pages: [] }, change);
    redraw();
  }

  return {
    title: "Endpoints",
    async load(signal) {
      const { senders } = await ask("api/v1/endpoints", { signal });
      const sender = senders.includes(query.sender) ? query.sender : senders[0];
      if (sender === undefined) return { senders, endpoints: [] };
      const cursor = query.pages.at(-1);
      const search = new URLSearchParams({
        limit: PAGE,
        ...(query.tenant && { tenant: query.tenant }),
        ...(cursor && { cursor }),
      });
      const page = await ask(`api/v1/endpoints/${encodeURIComponent(sender)}?${search}`, {
        signal,
      });
      return { senders, sender, ...page };
    },
    draw({ senders, sender, endpoints, cursor }) {
      if (sender === undefined) {
        const why = "No process sends webhooks. A sender appears here after createWebhooks().";
        return [h("h1", {}, "Endpoints"), h("p.empty", {}, why)];
      }
      const empty =
        query.tenant === ""
          ? "No endpoints yet. Add one with endpoints.put()."
          : `Tenant “${query.tenant}” has no endpoint.`;
      return [
        h("h1", {}, "Endpoints"),
        h(
          "section.panel",
          { "aria-label": "Endpoints" },
          h(
            "div.tools",
            {},
            searchBox("Filter by tenant", query.tenant, (text) => set({ tenant: text.trim() })),
            senders.length > 1 ? choice(senders, sender) : h("span.muted", {}, `sender: ${sender}`),
          ),
          table(
            "Endpoints",
            [
              "Endpoint",
              "State",
              "Limits",
              "#Due messages",
              "#Attempts per minute",
              "Last failure",
            ],
            endpoints.map((endpoint) => row(sender, endpoint)),
            empty,
          ),
          pager(query.pages, cursor, (pages) => set({ pages })),
        ),
      ];
    },
  };

  function choice(senders, sender) {
    return h(
      "label.pick",
      {},
      h("span.muted", {}, "sender"),
      h(
        "select",
        { onchange: ({ target }) => set({ sender: target.value, tenant: "" }) },
        senders.map((name) => h("option", { value: name, selected: name === sender }, name)),
      ),
    );
  }
}

function row(sender, endpoint) {
  const { tenant, id, url, status } = endpoint;
  return [
    h(
      "div",
      {},
      link(`${tenant} / ${id}`, "endpoint", sender, tenant, id),
      h("div.muted.small", {}, url),
    ),
    health(endpoint),
    limitsOf(endpoint),
    countOrDash(status.waiting),
    countOrDash(status.attemptsInLastMinute),
    status.lastFailure === undefined ? nothing() : failure(status.lastFailure),
  ];
}

/** How the board shows each state: its label and its colour. */
const STATES = {
  well: ["healthy", "good"],
  failing: ["failing", "warn"],
  "left alone": ["backing off", "warn"],
  disabled: ["disabled", "danger"],
};

/** The state of an endpoint, with its cause or its duration. */
export function health({ status, disabled }) {
  const { state, pausedForMs, failingSinceMs, failures } = status;
  const details = {
    disabled: () => `${disabled.reason}, ${ago(disabled.atMs)}`,
    "left alone": () => `for ${duration(pausedForMs)}`,
    failing: () => `${plural(failures, "failure")} in a row, since ${ago(failingSinceMs)}`,
  };
  const [label, tone] = STATES[state];
  return h("span", {}, badge(tone, label), h("span.muted.small", {}, details[state]?.() ?? ""));
}

/** The limits that the endpoint sets itself. */
function limitsOf({ rate, concurrency }) {
  const limits = [
    typeof rate === "object" ? JSON.stringify(rate) : rate,
    concurrency !== undefined && `${count(concurrency)} at once`,
  ].filter(Boolean);
  return limits.length === 0
    ? h("span.muted", {}, "sender’s default")
    : h("code", {}, limits.join(", "));
}

/** The outcome of a failed attempt, and its time. */
export function failure({ outcome, status, error, atMs }) {
  return h(
    "span",
    { title: time(atMs) },
    outcomeText(outcome, status),
    h("span.muted.small", {}, ` ${ago(atMs)}`),
    error !== undefined && h("div.muted.small", {}, error),
  );
}
