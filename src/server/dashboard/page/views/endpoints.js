/** Where senders send webhooks to, and how these endpoints are. */
import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { ago, count, duration, time } from "../parts/format.js";
import { badge, nothing, pager, table } from "../parts/parts.js";

const PAGE = 25;

export function endpointsView({ redraw, stay }) {
  const asked = stay("endpoints", { sender: undefined, tenant: "", pages: [] });

  function set(change) {
    Object.assign(asked, { pages: [] }, change);
    redraw();
  }

  return {
    title: "Endpoints",
    async load(signal) {
      const { senders } = await ask("api/v1/endpoints", { signal });
      const sender = senders.includes(asked.sender) ? asked.sender : senders[0];
      if (sender === undefined) return { senders, endpoints: [] };
      const cursor = asked.pages.at(-1);
      const query = new URLSearchParams({
        limit: PAGE,
        ...(asked.tenant && { tenant: asked.tenant }),
        ...(cursor && { cursor }),
      });
      const page = await ask(`api/v1/endpoints/${encodeURIComponent(sender)}?${query}`, {
        signal,
      });
      return { senders, sender, ...page };
    },
    draw({ senders, sender, endpoints, cursor }) {
      if (sender === undefined) {
        const why = "No process sends webhooks. A sender shows up here with createWebhooks().";
        return [h("h1", {}, "Endpoints"), h("p.empty", {}, why)];
      }
      const empty =
        asked.tenant === ""
          ? "Nothing is sent anywhere yet: no endpoint was put."
          : `Tenant “${asked.tenant}” has no endpoint.`;
      return [
        h("h1", {}, "Endpoints"),
        h(
          "section.panel",
          { "aria-label": "Endpoints" },
          h(
            "div.tools",
            {},
            h(
              "label.search",
              {},
              h("span.unseen", {}, "Only of this tenant"),
              h("input", {
                type: "search",
                placeholder: "Only of this tenant",
                id: "search",
                value: asked.tenant,
                oninput: ({ target }) => set({ tenant: target.value.trim() }),
              }),
            ),
            senders.length > 1 ? choice(senders, sender) : h("span.muted", {}, `sent by ${sender}`),
          ),
          table(
            "Endpoints",
            [
              "Endpoint",
              "How it is",
              "Its limits",
              "#Waiting",
              "#In the last minute",
              "Last failure",
            ],
            endpoints.map((endpoint) => row(sender, endpoint)),
            empty,
            "cards",
          ),
          pager(asked.pages, cursor, (pages) => set({ pages })),
        ),
      ];
    },
  };

  function choice(senders, sender) {
    return h(
      "label.pick",
      {},
      h("span.muted", {}, "sent by"),
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
  const parts = [sender, tenant, id].map(encodeURIComponent).join("/");
  return [
    h(
      "div",
      {},
      h("a", { href: `#/endpoint/${parts}` }, `${tenant} / ${id}`),
      h("div.muted.small", {}, url),
    ),
    health(endpoint),
    limitsOf(endpoint),
    status.waiting === 0 ? nothing() : count(status.waiting),
    status.attemptsInLastMinute === 0 ? nothing() : count(status.attemptsInLastMinute),
    status.lastFailure === undefined ? nothing() : failure(status.lastFailure),
  ];
}

const TONES = { well: "good", failing: "warn", "left alone": "warn", disabled: "danger" };

/** In which state an endpoint is, and since when or for how long. */
export function health({ status, disabled }) {
  const { state, leftAloneForMs, failingSinceMs, failures } = status;
  const details = {
    disabled: () => `${disabled.why}, ${ago(disabled.atMs)}`,
    "left alone": () => `for ${duration(leftAloneForMs)}`,
    failing: () => `${count(failures)} in a row, for ${ago(failingSinceMs).replace(" ago", "")}`,
  };
  return h(
    "span",
    {},
    badge(TONES[state], state),
    h("span.muted.small", {}, details[state]?.() ?? ""),
  );
}

/** The limits that it has of its own. */
function limitsText({ rate, concurrency }) {
  const said = [
    rate === undefined || typeof rate === "string" ? rate : JSON.stringify(rate),
    concurrency === undefined ? undefined : `${count(concurrency)} at once`,
  ].filter(Boolean);
  return said.length === 0 ? undefined : said.join(", ");
}

function limitsOf(endpoint) {
  const text = limitsText(endpoint);
  return text === undefined ? h("span.muted", {}, "the sender’s") : h("code", {}, text);
}

/** What an attempt came to, and when. */
export function failure({ outcome, status, error, atMs }) {
  return h(
    "span",
    { title: time(atMs) },
    status === undefined ? outcome : `${outcome} ${status}`,
    h("span.muted.small", {}, ` ${ago(atMs)}`),
    error === undefined ? undefined : h("div.muted.small", {}, error),
  );
}
