/** Serves the board at `/`. The files contain no data: the page reads its data from `/api/v1`. */
import { createHash } from "node:crypto";
import { extname } from "node:path";
import type { FastifyInstance } from "fastify";
import { readPageFiles } from "./page-files.ts";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

/**
 * Adds the routes of the board. `made` contains files of the page that the server generates when it
 * starts.
 */
export function dashboardRoutes(
  app: FastifyInstance,
  made: Readonly<Record<string, string>>,
): void {
  for (const [name, content] of Object.entries({ ...readPageFiles(), ...made })) {
    const etag = `"${createHash("sha256").update(content).digest("base64url").slice(0, 22)}"`;
    const url = name === "index.html" ? "/" : `/${name}`;
    app.get(url, { config: { needs: "nothing" }, schema: { hide: true } }, (request, reply) => {
      // Let browsers cache the files, because the files change only with the server version.
      void reply.headers({ "cache-control": "no-cache", etag });
      if (request.headers["if-none-match"] === etag) return reply.code(304).send();
      return reply.type(TYPES[extname(name)]!).send(content);
    });
  }
}
