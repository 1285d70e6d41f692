import { expect } from "vitest";
import type { FastifyInstance } from "fastify";
import type { SluiceServer } from "sluice/server";
import { ask, type Answer, type Asking } from "./open-server.ts";

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

interface Operation {
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}

interface Validate {
  (value: unknown): boolean;
  readonly errors?: unknown;
}

/** Asks a route, `"GET /api/v1/buckets/{bucket}"`, and checks that the answer is as the description of the API says. */
export async function askAsDescribed(
  { server, url }: { readonly server: SluiceServer; readonly url: string },
  route: string,
  { path, ...given }: Asking & { readonly path: string },
): Promise<Answer> {
  const [method = "", template = ""] = route.split(" ");
  const answer = await ask(url + path, { method, ...given });
  const { responses } = descriptionOf(server).paths[template]![method.toLowerCase()]!;
  const type = String(answer.headers["content-type"]).split(";")[0]!;
  const schema = responses[answer.status]?.content?.[type]?.schema;
  expect(schema, `${route} answers ${answer.status}: ${answer.text}`).toBeDefined();
  const parts = { schema, method, url: template, httpPart: "body" };
  const validate = (server.app as unknown as FastifyInstance).validatorCompiler!(
    parts as never,
  ) as unknown as Validate;
  expect(validate(answer.json) ? [] : validate.errors).toEqual([]);
  return answer;
}

/** All routes that the description has. */
export function routesOf(server: SluiceServer): string[] {
  return Object.entries(descriptionOf(server).paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
}

function descriptionOf(server: SluiceServer): Description {
  return (server.app as unknown as FastifyInstance).swagger() as unknown as Description;
}
