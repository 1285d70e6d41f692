/** Writes the reference pages that are not committed: HTTP routes, the keys of a rules file, the changelog. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createSluice } from "../src/sluice/index.ts";
import { createServer } from "../src/server/index.ts";
import { rulesJsonSchema } from "./rules-schema.ts";

const ROOT = resolve(import.meta.dirname, "..");
const REFERENCE = join(ROOT, "docs/reference");

interface Schema {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
}

interface Content {
  readonly content?: Readonly<Record<string, { readonly schema?: Schema }>>;
}

interface Operation {
  readonly summary?: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: string;
    readonly required?: boolean;
    readonly description?: string;
    readonly schema: Schema;
  }[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
}

interface OpenApi {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

async function openApi(): Promise<OpenApi> {
  const sluice = createSluice({ redis: "memory" });
  const server = await createServer(sluice, { port: 0, insecureLocal: true, logger: false });
  const { url } = await server.listen();
  const response = await fetch(`${url}/api/openapi.json`);
  const document = (await response.json()) as OpenApi;
  await server.close();
  await sluice.close();
  return document;
}

/** A schema as one cell of a table: its type, or the values that it allows. */
function typeOf(schema: Schema, root: Schema = schema): string {
  if (schema.$ref) return typeOf(resolveRef(schema.$ref, root), root);
  if (schema.enum) return schema.enum.map((value) => `\`${JSON.stringify(value)}\``).join(", ");
  if (schema.const !== undefined) return `\`${JSON.stringify(schema.const)}\``;
  if (schema.anyOf)
    return [...new Set(schema.anyOf.map((each) => typeOf(each, root)))].join(" or ");
  if (schema.oneOf) return "a [kind of limit](#kinds-of-limits)";
  if (schema.items) return `list of ${typeOf(schema.items, root)}`;
  return [schema.type ?? "any value"].flat().join(" or ");
}

function resolveRef(ref: string, root: Schema): Schema {
  return root.$defs![ref.replace("#/$defs/", "")]!;
}

function descriptionOf({ description, $ref }: Schema, root: Schema): string {
  return description ?? ($ref ? descriptionOf(resolveRef($ref, root), root) : "");
}

/** Follows references until the schema itself. */
function resolved(schema: Schema, root: Schema): Schema {
  return schema.$ref ? resolved(resolveRef(schema.$ref, root), root) : schema;
}

function cell(text: string): string {
  return text
    .replaceAll("|", "\\|")
    .replaceAll("\n", " ")
    .replaceAll(/[{}<]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => "---"), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
}

function fieldsOf({ properties = {}, required = [] }: Schema): string {
  const rows = Object.entries(properties).map(([name, field]) => [
    `\`${name}\`${required.includes(name) ? " (required)" : ""}`,
    typeOf(field),
    cell(field.description ?? ""),
  ]);
  return rows.length === 0 ? "" : table(["field", "type", "meaning"], rows);
}

function operationPage(method: string, path: string, operation: Operation): string {
  const parameters = (operation.parameters ?? []).filter((parameter) => parameter.in === "query");
  const body = Object.values(operation.requestBody?.content ?? {})[0]?.schema;
  const [status, success] = Object.entries(operation.responses)[0]!;
  const answer = Object.values(success.content ?? {})[0]?.schema;
  const part = (title: string, text: string | undefined): string[] => (text ? [title, text] : []);
  return [
    `### ${operation.summary ?? path}`,
    `\`${method.toUpperCase()} ${path}\``,
    ...part("", operation.description && cell(operation.description)),
    ...part(
      "Query parameters:",
      parameters.length === 0
        ? undefined
        : table(
            ["parameter", "type", "meaning"],
            parameters.map(({ name, schema, description }) => [
              `\`${name}\``,
              typeOf(schema),
              cell(description ?? schema.description ?? ""),
            ]),
          ),
    ),
    ...part("Body, JSON:", body && fieldsOf(body)),
    ...part(`Response ${status}:`, answer && fieldsOf(answer)),
  ]
    .filter(Boolean)
    .join("\n\n");
}

const SECTIONS: readonly (readonly [string, string])[] = [
  ["decide", "Draw, try and enqueue"],
  ["facts", "Read buckets and changes"],
  ["steering", "Change buckets"],
  ["queues", "Queues and jobs"],
  ["endpoints", "Webhook endpoints"],
  ["session", "Sign in"],
  ["health", "Health and metrics"],
];

async function httpPage(): Promise<string> {
  const operations = Object.entries((await openApi()).paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  );
  const sections = SECTIONS.map(([tag, title]) => {
    const ofTag = operations.filter(({ operation }) => (operation.tags?.[0] ?? "decide") === tag);
    const pages = ofTag.map(({ method, path, operation }) =>
      operationPage(method, path, operation),
    );
    return `## ${title}\n\n${pages.join("\n\n")}`;
  });
  return `# HTTP routes

\`sluice serve\` answers these routes. Generated from the server's OpenAPI 3.1 document, which it serves at \`/api/openapi.json\`.

Send a token as \`Authorization: Bearer …\`. Errors are \`application/problem+json\` with a \`code\` of the [errors page](errors.md).

${sections.join("\n\n")}
`;
}

/** The keys below a schema, with their full paths. References to a schema that is being listed end the path. */
function keysOf(schema: Schema, root: Schema, path: string, above: readonly string[]): string[][] {
  const { $ref } = schema;
  if ($ref !== undefined) {
    const name = $ref.replace("#/$defs/", "");
    if (above.includes(name)) return [];
    return keysOf(resolveRef($ref, root), root, path, [...above, name]);
  }
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const at = path === "" ? name : `${path}.${name}`;
    const row = [`\`${at}\``, typeOf(field, root), cell(descriptionOf(field, root))];
    return [row, ...keysOf(field, root, at, above)];
  });
  const inner = schema.additionalProperties;
  const named = typeof inner === "object" ? keysOf(inner, root, `${path}.<name>`, above) : [];
  const either = (schema.anyOf ?? []).flatMap((each) => keysOf(each, root, path, above));
  const items = schema.items ? keysOf(schema.items, root, `${path}[]`, above) : [];
  const seen = new Set<string>();
  return [...own, ...named, ...either, ...items].filter(
    ([key]) => !seen.has(key!) && seen.add(key!),
  );
}

/** The keys of each kind of limit. Limits are the only `oneOf` of the schema. */
function kindsOfLimits(root: Schema): string {
  const kinds = Object.values(root.$defs!).flatMap(({ oneOf = [] }) => oneOf);
  const tables = kinds.map((kind) => {
    const { properties = {}, required = [] } = resolved(kind, root);
    const { kind: name, ...others } = properties;
    const rows = Object.entries(others).map(([key, field]) => {
      const label = `\`${key}\`${required.includes(key) ? " (required)" : ""}`;
      return [label, typeOf(field, root), cell(descriptionOf(field, root))];
    });
    const title = String(resolved(name!, root).const);
    return `### \`kind: ${title}\`\n\n${table(["key", "type", "meaning"], rows)}`;
  });
  const example =
    "limits: [500/min, { kind: leaky-bucket, rate: 90000/min, unit: tokens, burst: 32000 }]";
  return `## Kinds of limits

An entry of \`limits\` is a rate, which makes a leaky bucket, or an object with a \`kind\` and the keys below: \`${example}\`. [Limits](limits.md) explains what each kind does.

${tables.join("\n\n")}`;
}

function rulesPage(): string {
  const schema = JSON.parse(rulesJsonSchema("draft-2020-12")) as Schema;
  const sections = Object.entries(schema.properties ?? {}).map(([name, field]) => {
    const rows = keysOf(field, schema, name, []);
    const keys = rows.length === 0 ? "" : `\n\n${table(["key", "type", "meaning"], rows)}`;
    return `## \`${name}\`\n\n${cell(field.description ?? "")}${keys}`;
  });
  return `# Keys of a rules file

Every key of \`sluice.yaml\`. Generated from the schema that the check uses; editors use the same schema from \`sluice.schema.json\`. The [guide](../guides/operate/rules-file.md) shows how to work with the file.

${sections.join("\n\n")}

${kindsOfLimits(schema)}
`;
}

function changelogPage(): string {
  const released = existsSync(join(ROOT, "CHANGELOG.md"))
    ? readFileSync(join(ROOT, "CHANGELOG.md"), "utf8")
    : "";
  const folder = join(ROOT, ".changeset");
  const changes = readdirSync(folder)
    .filter((name) => name.endsWith(".md") && name !== "README.md")
    .map((name) =>
      readFileSync(join(folder, name), "utf8")
        .replace(/^---[^]*?---/, "")
        .trim(),
    )
    .map((text) => text.replace(/^(.*)$/m, "### $1"));
  const pending = changes.length === 0 ? "" : `## Not yet released\n\n${changes.join("\n\n")}\n\n`;
  return `# Changelog

${pending}${released.replace(/^# .*$/m, "").trim()}
`
    .replaceAll(/\[([^\]]+)\]\([^)]*\)/g, "$1")
    .replaceAll(/<(?=[a-z])/gi, "&lt;")
    .replaceAll("{{", "&#123;&#123;");
}

mkdirSync(REFERENCE, { recursive: true });
writeFileSync(join(REFERENCE, "http.md"), await httpPage());
writeFileSync(join(REFERENCE, "rules-file.md"), rulesPage());
writeFileSync(join(REFERENCE, "changelog.md"), changelogPage());
