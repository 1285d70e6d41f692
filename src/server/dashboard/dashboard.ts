/** The board at `/`: files of its own, which hold no data; what they show they ask of `/api/v1`. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { extname, sep } from "node:path";
import type { FastifyInstance } from "fastify";

/** In the package they lie beside the bundle; in the sources, beside this file. */
const FOLDER = new URL("./page/", import.meta.url);
/** The build puts these among them; in the sources they are where npm puts them. */
const OF_UPLOT = { "uplot.js": "uPlot.iife.min.js", "uplot.css": "uPlot.min.css" } as const;

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

export function dashboardRoutes(app: FastifyInstance): void {
  for (const [name, content] of readPage()) {
    const etag = `"${createHash("sha256").update(content).digest("base64url").slice(0, 22)}"`;
    const url = name === "index.html" ? "/" : `/${name}`;
    app.get(url, { config: { needs: "nothing" }, schema: { hide: true } }, (request, reply) => {
      // They change with the version of the server alone.
      void reply.headers({ "cache-control": "no-cache", etag });
      if (request.headers["if-none-match"] === etag) return reply.code(304).send();
      return reply.type(TYPES[extname(name)]!).send(content);
    });
  }
}

function readPage(): ReadonlyMap<string, Buffer> {
  const all = readdirSync(FOLDER, { recursive: true, encoding: "utf8" });
  const names = all
    .filter((name) => extname(name) in TYPES)
    .map((name) => name.split(sep).join("/"));
  const files = new Map(names.map((name) => [name, readFileSync(new URL(name, FOLDER))]));
  const require = createRequire(import.meta.url);
  for (const [name, file] of Object.entries(OF_UPLOT)) {
    if (!files.has(name)) files.set(name, readFileSync(require.resolve(`uplot/dist/${file}`)));
  }
  return files;
}
