import { readFileSync, readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import * as nodeModule from "node:module";
import { dirname, extname, join } from "node:path";
import process from "node:process";
import type {
  AppControllerRoute,
  AppViewRoute,
  BullBoardQueues,
  IServerAdapter,
  UIConfig,
} from "@bull-board/api/typings/app";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { InsightStore } from "../../core/stores/insight/store.ts";
import { openStored } from "../../queue/bullmq/stored-queue.ts";
import { performNamed } from "../../operations/index.ts";
import type { Door } from "../../operations/operation.ts";
import { accessOf } from "../access/access.ts";
import { doorOf } from "../operations/routes.ts";
import { HttpProblem, problemOf, sendProblem } from "../problem.ts";
import { loadBullBoard, SUPPORTED_VERSION } from "./load-bull-board.cjs";
import { SteeredQueue } from "./steered-queue.ts";

const PATH = "/jobs";
const UI = "@bull-board/ui";
/** The most queues on the page, because the page reads each queue every few seconds. */
const MOST_QUEUES = 100;
const SHOWN: UIConfig = {
  boardTitle: "Sluice jobs",
  miscLinks: [{ text: "Sluice", url: "../" }],
  // Hide the link, because the manual is on another host.
  hideDocsLink: true,
  showWorkers: false,
};
/**
 * The content security policy of the page. It allows the inline styles and the base URL that the
 * page sets. Otherwise it is as strict as the policy of the board.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "worker-src 'self'",
  "base-uri 'self'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");
const TYPES: Readonly<Record<string, string>> = {
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".ico": "image/x-icon",
};

export interface BullBoardParts {
  readonly door: Omit<Door, "caller">;
  readonly insight: Pick<InsightStore, "queues">;
}

/**
 * Adds the routes of bull-board.
 *
 * @throws when the package is missing or has an unsupported version. No route is added then.
 */
export function bullBoardRoutes(app: FastifyInstance, parts: BullBoardParts): void {
  const ui = findFiles();
  const { entry, api } = partsOfBoard(ui.folder);
  pageRoutes(app, ui, entry);
  for (const route of api) apiRoute(app, route, parts);
}

/** The files of the bull-board page, from the package `@bull-board/ui`. */
interface BoardFiles {
  readonly folder: string;
  readonly page: string;
  /** The names of the static files. */
  readonly names: ReadonlySet<string>;
}

/** @throws when the package is missing, incomplete or has an unsupported version. */
function findFiles(): BoardFiles {
  // Call `createRequire` as a property, because bundles often declare a variable with this name. A
  // CommonJS bundle has no `import.meta.url`.
  const { resolve } = nodeModule.createRequire(import.meta.url ?? join(process.cwd(), "index.js"));
  const manifest = resolve(`${UI}/package.json`);
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { readonly version: string };
  if (!version.startsWith(`${SUPPORTED_VERSION}.`)) {
    throw new Error(`version ${version} is installed`);
  }
  const folder = dirname(manifest);
  const all = readdirSync(join(folder, "dist/static"), { recursive: true, encoding: "utf8" });
  const names = new Set(all.map((name) => name.replaceAll("\\", "/")));
  return { folder, page: readFileSync(join(folder, "dist/index.ejs"), "utf8"), names };
}

/** Returns what bull-board passes to a server adapter: its page and its API routes. */
function partsOfBoard(uiBasePath: string): { entry: AppViewRoute; api: AppControllerRoute[] } {
  let entry: AppViewRoute | undefined;
  let api: AppControllerRoute[] = [];
  const serverAdapter: IServerAdapter = {
    setEntryRoute(route) {
      entry = route;
      return serverAdapter;
    },
    setApiRoutes(routes) {
      api = routes;
      return serverAdapter;
    },
    setQueues: () => serverAdapter,
    setViewsPath: () => serverAdapter,
    setStaticPath: () => serverAdapter,
    setErrorHandler: () => serverAdapter,
    setUIConfig: () => serverAdapter,
  };
  loadBullBoard().createBullBoard({ queues: [], serverAdapter, options: { uiBasePath } });
  return { entry: entry!, api };
}

function pageRoutes(
  app: FastifyInstance,
  { folder, page, names }: BoardFiles,
  entry: AppViewRoute,
): void {
  const html = pageOf(page, entry);
  for (const path of ["", entry.route].flat()) {
    app.get(
      PATH + path,
      { config: { needs: "view" }, schema: { hide: true }, errorHandler: sendToSignIn },
      ({ url }, reply) => {
        void reply.header("content-security-policy", POLICY);
        return reply
          .type("text/html; charset=utf-8")
          .send(html.replace(BASE, `${rootOf(url)}jobs/`));
      },
    );
  }
  app.get(
    `${PATH}/base.js`,
    { config: { needs: "nothing" }, schema: { hide: true } },
    (_request, reply) => reply.type(TYPES[".js"]!).send(RESOLVE_BASE),
  );
  app.get<{ Params: { "*": string } }>(
    `${PATH}/static/*`,
    { config: { needs: "nothing" }, schema: { hide: true } },
    async ({ params: { "*": name } }, reply) => {
      const type = TYPES[extname(name)];
      if (!names.has(name) || type === undefined)
        throw new HttpProblem("ERR_ROUTE_MISSING", "There is no such file.");
      void reply.header("cache-control", "max-age=86400");
      return reply.type(type).send(await readFile(join(folder, "dist/static", name)));
    },
  );
}

/** Fills in the page template, and removes the page's links to fonts on another host. */
function pageOf(page: string, entry: AppViewRoute): string {
  const favIcon = { default: "static/images/logo.svg", alternative: "static/favicon-32x32.png" };
  const { params } = entry.handler({
    basePath: BASE,
    uiConfig: { ...SHOWN, favIcon },
  });
  return page
    .replaceAll(/<link\b[^>]*\bhref="https?:[^>]*>/g, "")
    .replace("</head>", '<script defer src="base.js"></script></head>')
    .replaceAll(/<%[-=]\s*(\w+)\s*%>/g, (_tag, param: string) => params[param] ?? "");
}

/**
 * A placeholder for the base URL, which depends on the path of each request. bull-board needs the
 * trailing slash.
 */
const BASE = "relative-base/";
/**
 * The scripts of bull-board need an absolute path as base. Only the browser knows that path, so
 * this script sets it before the other scripts run.
 */
const RESOLVE_BASE = `const base = document.querySelector("base");
base.setAttribute("href", new URL(base.href).pathname);
`;

/**
 * Returns the relative path from a request to the root of the server, because a proxy can serve the
 * server below another path.
 */
function rootOf(url: string): string {
  const depth = url.split("?", 1)[0]!.split("/").length - 2;
  return "../".repeat(depth) || "./";
}

/**
 * Redirects a client that is not signed in to the board, because only the board has a sign-in form.
 */
function sendToSignIn(error: Error, { url }: FastifyRequest, reply: FastifyReply): FastifyReply {
  const problem = problemOf(error);
  return problem.status === 401 ? reply.redirect(rootOf(url)) : sendProblem(reply, problem);
}

type RequestFields = Record<string, string | undefined>;

function apiRoute(app: FastifyInstance, route: AppControllerRoute, parts: BullBoardParts): void {
  const method = [route.method].flat().map((each) => each.toUpperCase());
  const needs = method.includes("GET") ? "view" : "act";
  for (const path of [route.route].flat()) {
    const queue = path.includes("/:queueName") ? { queue: "queueName" } : {};
    app.route<{ Params: RequestFields; Querystring: RequestFields; Body: Record<string, unknown> }>(
      {
        method,
        url: PATH + path,
        config: { needs, ...queue },
        schema: { hide: true },
        errorHandler: sendAsTheyRead,
        async handler(request, reply) {
          const { params, query, body } = request;
          const answer = await route.handler({
            queues: await queuesOf(request, { params, query }, parts),
            uiConfig: SHOWN,
            params,
            query,
            body: body ?? {},
            headers: {},
          });
          if (needs === "act") {
            const { name: by } = accessOf(request);
            request.log.info(
              { ...params, action: path, by },
              "An operator changed a queue on /jobs.",
            );
          }
          return reply.code(answer.status ?? 200).send(answer.body);
        },
      },
    );
  }
}

/** Sends an error in the field `error`, which the page of bull-board shows. */
function sendAsTheyRead(error: Error, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const problem = problemOf(error);
  if (problem.code === "ERR_INTERNAL")
    request.log.error({ err: error }, "A bull-board request failed with an internal error.");
  return sendProblem(reply, { ...problem, error: problem.detail });
}

/** Returns the queues that the token of a request may use. */
async function queuesOf(
  request: FastifyRequest,
  { params, query }: { readonly params: RequestFields; readonly query: RequestFields },
  { door, insight }: BullBoardParts,
): Promise<BullBoardQueues> {
  const { mayUse, mayQueue, name: by = "the server" } = accessOf(request);
  const mayAct = mayUse("act");
  const { queueName } = params;

  async function steered(name: string): Promise<SteeredQueue | undefined> {
    const queue = await door.sluice.findQueue(name);
    const run = <Result>(operation: string, input?: object): Promise<Result> =>
      performNamed(operation, doorOf(door, request), { queue: name, ...input });
    return queue && new SteeredQueue({ queue, stored: await openStored(queue), mayAct, by, run });
  }

  if (queueName !== undefined) {
    const queue = await steered(queueName);
    return new Map(queue && [[queueName, queue]]);
  }
  const { queues } = await insight.queues({ after: "", limit: MOST_QUEUES });
  const requested = [query["activeQueue"], query["queueName"]].flatMap((name) => name || []);
  const names = new Set([...queues.map(({ name }) => name), ...requested].filter(mayQueue));
  const opened = await Promise.allSettled([...names].map(steered));
  const found = opened.flatMap((each) => (each.status === "fulfilled" && each.value) || []);
  const [failed] = opened.filter((each) => each.status === "rejected");
  // Show the other queues even if the server of one queue is unreachable.
  if (found.length === 0 && failed !== undefined) throw failed.reason;
  return new Map(found.map((queue) => [queue.getName(), queue]));
}
