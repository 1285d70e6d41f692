import { existsSync, readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { defineConfig, type DefaultTheme } from "vitepress";
import llmstxt from "vitepress-plugin-llms";
import { linkCopies } from "./link-copies.ts";
import packageJson from "../../package.json" with { type: "json" };

const DOCS = fileURLToPath(new URL("..", import.meta.url));

type Pages = readonly (readonly [path: string, title?: string])[];

/** A part of the sidebar. A page without a title here has its first heading as its title. */
function section(text: string, pages: Pages, collapsed?: boolean): DefaultTheme.SidebarItem {
  const items = pages.map(([path, title]) => ({ text: titleOf(path, title), link: `/${path}` }));
  return { text, items, ...(collapsed === undefined ? {} : { collapsed }) };
}

/** @throws if there is no such page. VitePress itself checks the links of pages only. */
function titleOf(path: string, given?: string): string {
  const name = `docs/${path.replace(/\/$/, "/index")}.md`;
  const file = resolve(DOCS, "..", name);
  if (!existsSync(file)) throw new Error(`The sidebar names ${name}, which does not exist.`);
  const title = given ?? /^# (.+)$/m.exec(readFileSync(file, "utf8"))?.[1];
  if (title === undefined) throw new Error(`The sidebar names ${name}, which has no heading.`);
  return title;
}

const SIDEBAR = [
  section("Start", [
    ["start/install"],
    ["start/init"],
    ["start/first-call"],
    ["start/first-queue"],
    ["start/first-webhook"],
    ["start/llm"],
    ["start/other-languages"],
    ["playground"],
  ]),
  section("Pace calls", [
    ["guides/calls/pace-a-client"],
    ["guides/calls/choose-a-limit"],
    ["guides/calls/limits-per-customer"],
    ["guides/calls/share-a-rate"],
    ["guides/calls/pools"],
    ["guides/calls/costs"],
    ["guides/calls/budgets"],
    ["guides/calls/llm"],
    ["guides/calls/refusals"],
    ["guides/calls/limit-your-callers"],
  ]),
  section("Run jobs", [
    ["guides/jobs/run-jobs"],
    ["guides/jobs/retry-and-dead-letters"],
    ["guides/jobs/unreachable"],
    ["guides/jobs/share-between-tenants"],
    ["guides/jobs/schedule-and-deduplicate"],
    ["guides/jobs/order-and-batches"],
    ["guides/jobs/flows"],
    ["guides/jobs/outbox"],
    ["guides/jobs/encrypt-and-compress"],
    ["guides/jobs/worker-options"],
    ["guides/jobs/workers-in-any-language"],
    ["guides/jobs/run-until-empty"],
    ["guides/jobs/middleware"],
    ["guides/jobs/list-and-change-jobs"],
  ]),
  section("Send webhooks", [
    ["guides/webhooks/send"],
    ["guides/webhooks/endpoints"],
    ["guides/webhooks/secrets"],
    ["guides/webhooks/receive"],
    ["guides/webhooks/log-and-replay"],
  ]),
  section("Operate", [
    ["guides/operate/what-is-stuck"],
    ["guides/operate/board"],
    ["guides/operate/change-live"],
    ["guides/operate/rules-file"],
    ["guides/operate/simulate"],
    ["guides/operate/behind-a-proxy"],
    ["guides/operate/metrics"],
    ["guides/operate/mcp"],
  ]),
  section("Run in production", [
    ["guides/production/checklist"],
    ["guides/production/redis"],
    ["guides/production/deploy-and-shut-down"],
    ["guides/production/outages"],
    ["guides/production/containers"],
    ["guides/production/dependencies"],
    ["guides/production/conform"],
  ]),
  section("More guides", [
    ["guides/any-language"],
    ["guides/nestjs"],
    ["guides/forward"],
    ["guides/ready-workers"],
    ["guides/test-your-code"],
    ["guides/migrate"],
  ]),
  section("Concepts", [
    ["concepts/how-it-fits"],
    ["concepts/bucket"],
    ["concepts/slot"],
    ["concepts/keys"],
    ["concepts/fairness"],
    ["concepts/cooldown"],
    ["concepts/outage"],
  ]),
  section("Reference", [
    ["cheat-sheet"],
    ["reference/api/sluice/", "API: sluice"],
    ["reference/api/webhooks/", "API: sluice/webhooks"],
    ["reference/api/queue/outbox/", "API: sluice/outbox"],
    ["reference/api/stores/codec/", "API: sluice/codec"],
    ["reference/api/entries/nestjs/", "API: sluice/nestjs"],
    ["reference/api/entries/bottleneck/", "API: sluice/bottleneck"],
    ["reference/api/entries/llm/", "API: sluice/llm"],
    ["reference/api/server/", "API: sluice/server"],
    ["reference/api/insight/metrics/", "API: sluice/metrics"],
    ["reference/api/insight/metrics/opentelemetry/", "API: sluice/opentelemetry"],
    ["reference/api/entries/simulate/", "API: sluice/simulate"],
    ["reference/api/entries/testing/", "API: sluice/testing"],
    ["reference/limits"],
    ["reference/pools"],
    ["reference/queue"],
    ["reference/refusals"],
    ["reference/webhooks"],
    ["reference/outbox"],
    ["reference/errors"],
    ["reference/metrics"],
    ["reference/cli"],
    ["reference/http"],
    ["reference/rules-file"],
    ["reference/faults"],
    ["guarantees"],
    ["reference/changelog"],
  ]),
  section("Why it is built this way", [["decisions/index", "Decisions"]]),
].filter(({ items }) => items!.length > 0);

/** Links to files of the repository that are no pages of this site, such as `../README.md`. */
function leavesSite(link: string): boolean {
  return /(README|CONTRIBUTING|SECURITY|ARCHITECTURE|RESULTS)(\.md)?(#|$)|\.\.\/(examples|ops|bench)\//.test(
    link,
  );
}

export default defineConfig({
  title: "Sluice",
  // The folder of the site at its address, with slashes: "/sluice/". Defaults to the root.
  base: process.env["SITE_BASE"] ?? "/",
  description: packageJson.description,
  lang: "en",
  srcExclude: ["node_modules/**"],
  // Pages are links of files in the repository too, so links name `.md` files.
  cleanUrls: false,
  lastUpdated: false,
  ignoreDeadLinks: [leavesSite],
  markdown: {
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    config(md) {
      const image = md.renderer.rules.image!;
      // A diagram becomes part of the page, so that it follows the page's colours.
      md.renderer.rules.image = (tokens, index, options, env, self) => {
        const token = tokens[index]!;
        const source = token.attrGet("src") ?? "";
        if (!source.endsWith(".svg")) return image(tokens, index, options, env, self);
        const svg = readFileSync(resolve(dirname(env.path as string), source), "utf8");
        return svg.replace("<svg ", `<svg role="img" aria-label="${token.content}" `);
      };
      // Links to other files of the repository are shown as text: this site has no address for them.
      md.core.ruler.push("repository_links", ({ tokens }) => {
        for (const { children } of tokens) {
          let isOutside = false;
          for (const token of children ?? []) {
            if (token.type === "link_open") isOutside = leavesSite(token.attrGet("href") ?? "");
            if (!isOutside || !token.type.startsWith("link_")) continue;
            const closes = token.type === "link_close";
            token.type = closes ? "em_close" : "em_open";
            token.tag = "em";
            token.attrs = null;
            if (closes) isOutside = false;
          }
        }
      });
    },
  },
  vite: {
    // The playground runs the built simulator: `npm run build` writes it.
    resolve: { alias: { "sluice/simulate": resolve(DOCS, "../dist/simulate.browser.js") } },
    plugins: [
      llmstxt({
        excludeIndexPage: false,
        ignoreFiles: ["reference/changelog.md", "reference/api/**", "node_modules/**"],
      }),
    ],
    build: { chunkSizeWarningLimit: 2_000 },
  },
  transformPageData({ relativePath, frontmatter }) {
    // These pages are not in the sidebar, so VitePress would offer the first guide as the next page.
    const isListed = !/^(decisions|reference\/api)\//.test(relativePath);
    if (!isListed) Object.assign(frontmatter, { prev: false, next: false });
    // The tables of these pages also need the width of the outline.
    if (/^reference\/(errors|faults)\.md$/.test(relativePath)) frontmatter["aside"] = false;
  },
  buildEnd: ({ outDir }) => linkCopies(DOCS, outDir),
  themeConfig: {
    nav: [
      { text: "Start", link: "/start/install" },
      { text: "Guides", link: "/guides/calls/pace-a-client" },
      { text: "Playground", link: "/playground" },
      { text: "Concepts", link: "/concepts/how-it-fits" },
      { text: "Reference", link: "/cheat-sheet" },
      { text: `v${packageJson.version}`, link: "/reference/changelog" },
    ],
    sidebar: SIDEBAR,
    outline: [2, 3],
    search: {
      provider: "local",
      options: {
        _render(source, env, md) {
          // The changelog repeats words of every page.
          if (env.relativePath === "reference/changelog.md") return "";
          return md.render(source, env);
        },
      },
    },
    footer: { message: "MIT licence" },
  },
});
