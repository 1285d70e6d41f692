/** Writes the texts of the files of `sluice init`. */

export const CALLS = ["stripe", "openai", "api", "webhooks"] as const;
export type Call = (typeof CALLS)[number];

export interface InitChoices {
  readonly calls: readonly Call[];
  readonly hasQueue: boolean;
  readonly hasRules: boolean;
}

/** How the project's own files are written. */
export interface CodeStyle {
  readonly isTypeScript: boolean;
  /** True if the file runs as an ES module, false as CommonJS. */
  readonly isEsm: boolean;
}

/** Code with types, between `«` and `»`. They are removed from JavaScript. */
const TYPES = /«([^«»]*)»/g;

/** A call that the file makes: its bucket, and how to try it. */
interface Part {
  readonly imports?: readonly (readonly [names: string, from: string])[];
  readonly code: string;
  readonly exports: readonly string[];
  /** Statements that try the part when the file is run by itself. */
  readonly trial: string;
}

interface RestApi {
  /** The name of the bucket, and of the constant that holds it. */
  readonly bucket: string;
  readonly call: string;
  readonly name: string;
  readonly limit: string;
  readonly options: string;
  /** The address, and the variable that replaces it. */
  readonly url: string;
  readonly variable: string;
  readonly key: string;
  readonly trialPath: string;
  readonly hint?: string;
}

const STRIPE: RestApi = {
  bucket: "stripe",
  call: "callStripe",
  name: "Stripe",
  limit: "Stripe allows 100 calls a second in live mode, and 25 in a sandbox.",
  options: '{ rate: "25/s" }',
  url: "https://api.stripe.com",
  variable: "STRIPE_URL",
  key: "STRIPE_SECRET_KEY",
  trialPath: "/v1/balance",
  hint: `// With its SDK: new Stripe(key, { httpClient: Stripe.createFetchHttpClient(stripe.fetch), maxNetworkRetries: 0 })`,
};

const OPENAI: RestApi = {
  bucket: "gpt",
  call: "callOpenAi",
  name: "OpenAI",
  limit: "Your limits are on the limits page of your account.",
  options: 'openai({ requests: "500/min", tokens: "200000/min" })',
  url: "https://api.openai.com",
  variable: "OPENAI_URL",
  key: "OPENAI_API_KEY",
  trialPath: "/v1/models",
  hint: "// With its SDK: new OpenAI({ fetch: gpt.fetch, maxRetries: 0 })",
};

const API: RestApi = {
  bucket: "api",
  call: "callApi",
  name: "the API",
  limit: "Set the limit that the API documents.",
  options: '{ rate: "10/s" }',
  url: "https://api.example.com",
  variable: "API_URL",
  key: "API_KEY",
  trialPath: "/",
};

function restPart(api: RestApi, { hasRules }: InitChoices): Part {
  const { bucket, call, name, limit, url, variable, key, trialPath, hint } = api;
  const inFile = hasRules && api !== OPENAI;
  const options = inFile ? "" : `, ${api.options}`;
  const where = inFile ? `${RULES_FILE} has its limits.` : limit;
  return {
    ...(api === OPENAI ? { imports: [["openai", "sluice/llm"]] } : {}),
    exports: [bucket, call],
    code: `/** ${where} */
export const ${bucket} = sluice.bucket("${bucket}"${options});
${hint === undefined ? "" : `${hint}\n`}
/** Calls ${name} when it is this call's turn. A 429 makes all processes wait, and then the call is sent again. */
export async function ${call}(path«: string», init«: RequestInit» = {})«: Promise<Response>» {
  const headers = new Headers(init.headers);
  headers.set("authorization", \`Bearer \${process.env["${key}"] ?? ""}\`);
  return ${bucket}.fetch(new URL(path, process.env["${variable}"] ?? "${url}"), { ...init, headers });
}`,
    trial: `  const ${bucket}Responses = await Promise.all([1, 2, 3].map(() => ${call}("${trialPath}")));
  console.log("${bucket}:", ...${bucket}Responses.map((response) => response.status));`,
  };
}

const WEBHOOKS: Part = {
  imports: [["createWebhooks", "sluice/webhooks"]],
  exports: ["hooks", "sendEvent"],
  code: `/** The secrets of endpoints are encrypted with $SLUICE_WEBHOOK_KEYS: k1:$(openssl rand -base64 32). Keep it. */
export const hooks = createWebhooks(sluice, {
  rate: "100/s",
  perEndpoint: { rate: "5/s" },
  // Endpoints on this machine are for development only.
  ...(process.env["NODE_ENV"] === "production" ? {} : { http: true, allow: ["127.0.0.0/8"] }),
});

/** Sends an event to all endpoints of a tenant that want its type. Call hooks.worker() where it is to be sent. */
export async function sendEvent(tenant«: string», type«: string», data«: object»)«: Promise<void>» {
  await hooks.send({ tenant, type, data });
}`,
  trial: [
    '  const url = process.env["WEBHOOK_URL"];',
    '  if (url === undefined) throw new Error("Set $WEBHOOK_URL to an endpoint for a test event.");',
    '  await hooks.endpoints.put({ tenant: "trial", id: "trial", url });',
    '  await sendEvent("trial", "trial.started", { hello: "world" });',
    "  hooks.worker();",
    "  for (;;) {",
    '    const { entries } = await hooks.attempts.list({ tenant: "trial", endpoint: "trial" });',
    "    const [attempt] = entries;",
    "    if (attempt !== undefined) {",
    '      console.log("webhook:", attempt.status ?? attempt.error);',
    "      break;",
    "    }",
    "    await new Promise((resolve) => setTimeout(resolve, 50));",
    "  }",
    '  await hooks.expunge({ tenant: "trial" });',
  ].join("\n"),
};

/** A queue whose jobs call the first API. */
function queuePart(calls: readonly RestApi[]): Part {
  const [api] = calls;
  const bucket = api?.bucket ?? "work";
  const own =
    api === undefined ? `export const work = sluice.bucket("work", { rate: "10/s" });\n\n` : "";
  const handle =
    api === undefined
      ? "    console.log(job.data.path);\n    return 200;"
      : `    const response = await ${api.call}(job.data.path);
    if (!response.ok) throw new Error(\`HTTP \${response.status}\`, { cause: response });
    return response.status;`;
  return {
    exports: [...(api === undefined ? ["work"] : []), "jobs", "startWorker"],
    code: `${own}/** Jobs stay in Redis until they are done. The key of a job names its tenant: tenants take turns. */
export const jobs = sluice.queue«<{ readonly path: string }, number>»("calls", { bucket: ${bucket} });

/** Runs jobs. Start it in as many processes as you like. A job whose handler throws is tried again. */
export function startWorker() {
  return sluice.worker(jobs, async (job) => {
${handle}
  });
}`,
    trial: `  const worker = startWorker();
  const job = await jobs.enqueue({ path: "${api?.trialPath ?? "/"}" }, { key: "trial" });
  console.log("job:", await job.finished());
  await worker.close();`,
  };
}

const REST: Partial<Readonly<Record<Call, RestApi>>> = { stripe: STRIPE, openai: OPENAI, api: API };

/** Returns the file that declares the buckets, and that tries them when it is run by itself. */
export function codeFile(choices: InitChoices, style: CodeStyle, name: string): string {
  const { calls, hasQueue, hasRules } = choices;
  const apis = calls.flatMap((call) => REST[call] ?? []);
  const parts = [
    ...apis.map((api) => restPart(api, choices)),
    ...(calls.includes("webhooks") ? [WEBHOOKS] : []),
    ...(hasQueue ? [queuePart(apis)] : []),
  ];
  const imports = [
    ["createSluice", "sluice"] as const,
    ...parts.flatMap((part) => part.imports ?? []),
  ];
  const options = hasRules ? `{ rules: "${RULES_FILE}" }` : "";
  const text = `${importsOf(imports, style)}

/** All processes with the same $REDIS_URL share the limits. Close it before the process ends. */
export const sluice = createSluice(${options});

${parts.map(({ code }) => code).join("\n\n")}

/** Tries all of this: ${commandFor(name)} */
async function tryOut()«: Promise<void>» {
${parts.map(({ trial }) => trial).join("\n")}
  await sluice.close();
}

${runIfMain(style)}
`;
  const typed = text.replaceAll(TYPES, style.isTypeScript ? "$1" : "");
  const isCommonJs = !style.isEsm && !style.isTypeScript;
  return isCommonJs
    ? asCommonJs(typed, ["sluice", ...parts.flatMap((part) => part.exports)])
    : typed;
}

function importsOf(
  imports: readonly (readonly [names: string, from: string])[],
  { isTypeScript, isEsm }: CodeStyle,
): string {
  if (!isEsm && !isTypeScript)
    return imports.map(([names, from]) => `const { ${names} } = require("${from}");`).join("\n");
  const node = isEsm ? [["{ fileURLToPath }", "node:url"] as const] : [];
  return [...node, ...imports.map(([names, from]) => [`{ ${names} }`, from] as const)]
    .map(([names, from]) => `import ${names} from "${from}";`)
    .join("\n");
}

function runIfMain({ isEsm }: CodeStyle): string {
  const condition = isEsm
    ? "process.argv[1] === fileURLToPath(import.meta.url)"
    : "require.main === module";
  return `if (${condition}) {
  tryOut().catch(async (error) => {
    console.error(error);
    process.exitCode = 1;
    await sluice.close();
  });
}`;
}

function asCommonJs(text: string, names: readonly string[]): string {
  const plain = text.replaceAll(/^export /gm, "");
  return `${plain}\nmodule.exports = { ${names.join(", ")} };\n`;
}

export function commandFor(name: string): string {
  return name.endsWith(".ts") ? `npx tsx ${name}` : `node ${name}`;
}

export const RULES_FILE = "sluice.yaml";
export const COMPOSE_FILE = "compose.sluice.yaml";

export function rulesFile({ calls }: InitChoices): string {
  const buckets = calls.flatMap((call) => {
    if (call === "stripe") return ["  stripe: { rate: 25/s }"];
    return call === "api" ? ["  api: { rate: 10/s }"] : [];
  });
  return `# The limits of all processes. Raise the version with each change: npx sluice rules apply ${RULES_FILE}
version: 1
buckets:${buckets.length === 0 ? " {}" : `\n${buckets.join("\n")}`}
`;
}

export const COMPOSE_TEXT = `# Redis for Sluice: docker compose -f ${COMPOSE_FILE} up -d
services:
  redis:
    image: redis:8-alpine
    command: ["redis-server", "--appendonly", "yes", "--maxmemory-policy", "noeviction"]
    ports: ["127.0.0.1:6379:6379"]
    volumes: ["redis-data:/data"]
    healthcheck:
      test: ["CMD", "redis-cli", "ping"]
      interval: 2s
volumes:
  redis-data:
`;
