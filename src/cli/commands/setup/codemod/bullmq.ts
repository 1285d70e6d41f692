import type { Expression, NewExpression, Node, SourceFile } from "ts-morph";
import { isUsedElsewhere, propertiesOf, rateText, type Edits } from "./edits.ts";

type Morph = typeof import("ts-morph");

/** The rate of each queue in code, by the name of the queue in code. */
export type RatesOfQueues = Map<string, string>;

const OF_WORKERS = new Set(["connection", "concurrency", "limiter", "autorun", "prefix"]);
const OF_QUEUES = new Set(["connection", "defaultJobOptions", "prefix"]);

/** The classes that a file imports from BullMQ, by the names in the file. */
interface Imported {
  readonly statement: Node;
  readonly names: ReadonlyMap<string, { readonly local: string; readonly node: Node }>;
}

/** Reads the rates of the workers in a file, which queues in other files need too. */
export function readRates(file: SourceFile, rates: RatesOfQueues, morph: Morph): void {
  const imported = importOf(file, morph);
  for (const worker of newOf(file, imported?.names.get("Worker")?.local, morph)) {
    const [name, , options] = worker.getArguments();
    const rate = rateOf(options, morph);
    if (name !== undefined && rate !== undefined) rates.set(nameOf(name, morph), rate);
  }
}

/** Rewrites the queues and workers of one file, if it imports BullMQ. */
export function rewriteBullmq(
  file: SourceFile,
  editsOf: (file: SourceFile) => Edits,
  rates: RatesOfQueues,
  morph: Morph,
): void {
  const imported = importOf(file, morph);
  if (imported === undefined) return;
  const edits = editsOf(file);
  const gone: Node[] = [];
  for (const worker of newOf(file, imported.names.get("Worker")?.local, morph)) {
    const problem = rewriteWorker(worker, edits, morph, gone);
    if (problem === undefined) gone.push(worker.getExpression());
    else edits.todo(worker, problem);
  }
  for (const queue of newOf(file, imported.names.get("Queue")?.local, morph)) {
    const problem = rewriteQueue(queue, edits, rates, morph);
    if (problem === undefined) gone.push(queue.getExpression());
    else edits.todo(queue, problem);
  }
  if (gone.length === 0) return;
  edits.imports.add("createSluice");
  const advice = "create one sluice in a module of your own, and import it where you need it";
  edits.addAfterImports(`\n// TODO(sluice): ${advice}\nconst sluice = createSluice();`);
  dropImports(file, imported, { edits, gone, morph });
}

function importOf(file: SourceFile, { Node: Nodes }: Morph): Imported | undefined {
  const names = new Map<string, { local: string; node: Node }>();
  const declaration = file.getImportDeclaration(
    (each) => each.getModuleSpecifierValue() === "bullmq",
  );
  for (const each of declaration?.getNamedImports() ?? []) {
    names.set(each.getName(), {
      local: each.getAliasNode()?.getText() ?? each.getName(),
      node: each,
    });
  }
  if (declaration !== undefined) return { statement: declaration, names };
  for (const statement of file.getVariableStatements()) {
    const [variable] = statement.getDeclarations();
    if (!/^require\(["']bullmq["']\)$/.test(variable?.getInitializer()?.getText() ?? "")) continue;
    const binding = variable!.getNameNode();
    if (!Nodes.isObjectBindingPattern(binding)) continue;
    for (const each of binding.getElements()) {
      const name = each.getPropertyNameNode()?.getText() ?? each.getName();
      names.set(name, { local: each.getName(), node: each });
    }
    return { statement, names };
  }
  return undefined;
}

function newOf(
  file: SourceFile,
  local: string | undefined,
  { SyntaxKind }: Morph,
): NewExpression[] {
  if (local === undefined) return [];
  return file
    .getDescendantsOfKind(SyntaxKind.NewExpression)
    .filter((each) => each.getExpression().getText() === local);
}

/** The name of a queue in code. A constant with a text counts as the text. */
function nameOf(name: Node, { Node: Nodes }: Morph): string {
  if (!Nodes.isIdentifier(name) && !Nodes.isPropertyAccessExpression(name)) return name.getText();
  const type = name.getType();
  return type.isStringLiteral() ? JSON.stringify(type.getLiteralValue()) : name.getText();
}

function optionsOf(node: Node | undefined, morph: Morph): Map<string, Expression> | undefined {
  if (node === undefined) return new Map();
  if (!morph.Node.isObjectLiteralExpression(node)) return undefined;
  return propertiesOf(node, morph);
}

/** The rate of a worker's limiter in code. */
function rateOf(options: Node | undefined, morph: Morph): string | undefined {
  const limiter = optionsOf(options, morph)?.get("limiter");
  const terms = limiter === undefined ? undefined : optionsOf(limiter, morph);
  const [max, duration] = [terms?.get("max"), terms?.get("duration")];
  if (max === undefined || duration === undefined) return undefined;
  return rateText(max, duration);
}

/** Returns why a person has to decide, or undefined after the change. */
function rewriteWorker(
  worker: NewExpression,
  edits: Edits,
  morph: Morph,
  gone: Node[],
): string | undefined {
  const { Node: Nodes } = morph;
  const [name, processor, given] = worker.getArguments();
  const options = optionsOf(given, morph);
  const rate = rateOf(given, morph);
  if (name === undefined || processor === undefined) return "this worker has no processor";
  if (options === undefined) return "the options of this worker are not written out here";
  const unknown = [...options.keys()].find((key) => !OF_WORKERS.has(key));
  if (unknown !== undefined) return `the option ${unknown} of this worker has to be translated`;
  if (rate === undefined) return "this worker has no limiter; choose the rate of its bucket";
  const variable = variableOf(worker, morph);
  if (isUsedElsewhere(variable, morph)) return "other files use this worker";
  const isInline = Nodes.isArrowFunction(processor) || Nodes.isFunctionExpression(processor);
  const type = isInline ? processor.getParameters()[0]?.getTypeNode() : undefined;
  const data = type === undefined ? undefined : /^Job<([^]*)>$/.exec(type.getText())?.[1];
  if (type !== undefined) {
    edits.replace(type.getPreviousSibling()!.getStart(), type.getEnd(), "");
    gone.push(type);
  }
  const queue = queueText(name.getText(), { data: data ?? "any", rate, attempts: "1" });
  edits.replace(worker.getStart(), processor.getStart(), `sluice.worker(${queue}, `);
  const concurrency = options.get("concurrency")?.getText() ?? "1";
  edits.replace(processor.getEnd(), worker.getEnd(), `, { concurrency: ${concurrency} })`);
  edits.done();
  if (!isInline)
    edits.todo(worker, "check that the handler only uses data, name and id of its job");
  edits.todo(worker, "let the old worker finish the jobs of the old queue");
  if (options.has("connection")) {
    edits.todo(worker, "pass the address of Redis to createSluice({ redis })");
  }
  for (const use of usesOf(variable, morph)) {
    if (use.method !== "close")
      edits.todo(use.node, `worker.${use.method}() differs; see "Migrate"`);
  }
  return undefined;
}

function rewriteQueue(
  queue: NewExpression,
  edits: Edits,
  rates: RatesOfQueues,
  morph: Morph,
): string | undefined {
  const [name, given] = queue.getArguments();
  const options = optionsOf(given, morph);
  if (name === undefined) return "this queue has no name";
  const rate = rates.get(nameOf(name, morph));
  if (rate === undefined) return "no worker with a limiter was found for this queue";
  const variable = variableOf(queue, morph);
  if (variable === undefined || isUsedElsewhere(variable, morph)) {
    return "its worker uses Sluice now; enqueue with sluice.queue() wherever this queue is used";
  }
  const unknown = [...(options?.keys() ?? [])].find((key) => !OF_QUEUES.has(key));
  if (options === undefined || unknown !== undefined) {
    return "the options of this queue are not all known here";
  }
  const defaults = options.get("defaultJobOptions");
  const attempts = defaults === undefined ? undefined : optionsOf(defaults, morph)?.get("attempts");
  const [data] = queue.getTypeArguments();
  const text = queueText(name.getText(), {
    data: data?.getText() ?? "any",
    rate,
    attempts: attempts?.getText() ?? "1",
  });
  edits.replace(queue.getStart(), queue.getEnd(), text);
  edits.done();
  if (defaults !== undefined) edits.todo(queue, "translate the other options of defaultJobOptions");
  if (options.has("connection")) {
    edits.todo(queue, "pass the address of Redis to createSluice({ redis })");
  }
  for (const use of usesOf(variable, morph)) {
    if (use.method === "add") rewriteAdd(use, edits, morph);
    else edits.todo(use.node, `queue.${use.method}() differs; see "Migrate"`);
  }
  return undefined;
}

function queueText(
  name: string,
  { data, rate, attempts }: { data: string; rate: string; attempts: string },
): string {
  const bucket = `sluice.bucket(${name}, { rate: ${rate} })`;
  return `sluice.queue<${data}>(${name}, { bucket: ${bucket}, defaults: { attempts: ${attempts} } })`;
}

function variableOf(created: NewExpression, { Node: Nodes }: Morph): Node | undefined {
  const parent = created.getParent();
  const isNamed = Nodes.isVariableDeclaration(parent) || Nodes.isPropertyDeclaration(parent);
  return isNamed ? parent.getNameNode() : undefined;
}

interface Use {
  readonly node: Node;
  readonly method: string;
  readonly args: readonly Node[];
  readonly methodNode: Node;
}

/** The calls of methods of what a variable holds. */
function usesOf(variable: Node | undefined, { Node: Nodes }: Morph): Use[] {
  if (variable === undefined || !Nodes.isReferenceFindable(variable)) return [];
  return variable.findReferencesAsNodes().flatMap((each) => {
    const parent = each.getParent();
    const isMember = Nodes.isPropertyAccessExpression(parent) && parent.getNameNode() === each;
    const node = isMember ? parent : each;
    const access = node.getParent();
    if (!Nodes.isPropertyAccessExpression(access) || access.getExpression() !== node) return [];
    const call = access.getParent();
    const args = Nodes.isCallExpression(call) ? call.getArguments() : [];
    const methodNode = access.getNameNode();
    return [{ node, method: methodNode.getText(), args, methodNode }];
  });
}

/** The options of jobs that only have another name. */
const JOB_OPTIONS: Readonly<Record<string, string>> = {
  delay: "delayMs",
  jobId: "id",
  attempts: "attempts",
};

function rewriteAdd({ node, args, methodNode }: Use, edits: Edits, morph: Morph): void {
  const [name, data, given] = args;
  const options = optionsOf(given, morph);
  const unknown = [...(options?.keys() ?? [])].filter((key) => JOB_OPTIONS[key] === undefined);
  if (name === undefined || data === undefined || options === undefined) {
    return edits.todo(node, "add() is enqueue(data, { name }); these arguments are not known here");
  }
  if (unknown.length > 0) {
    return edits.todo(node, `add() is enqueue(data, options); translate ${unknown.join(", ")}`);
  }
  const others = [...options].map(([key, value]) => `, ${JOB_OPTIONS[key]}: ${value.getText()}`);
  const end = (given ?? data).getEnd();
  edits.replace(methodNode.getStart(), methodNode.getEnd(), "enqueue");
  edits.replace(name.getStart(), data.getStart(), "");
  edits.replace(data.getEnd(), end, `, { name: ${name.getText()}${others.join("")} }`);
  edits.done();
}

/** Removes imported names that the file no longer uses. */
function dropImports(
  file: SourceFile,
  { statement, names }: Imported,
  { edits, gone, morph }: { edits: Edits; gone: readonly Node[]; morph: Morph },
): void {
  const { SyntaxKind } = morph;
  const uses = file
    .getDescendantsOfKind(SyntaxKind.Identifier)
    .filter((each) => each.getFirstAncestor((parent) => parent === statement) === undefined)
    .filter((each) => !gone.some((node) => node === each || each.getAncestors().includes(node)));
  const kept = [...names.values()].filter(({ local }) =>
    uses.some((each) => each.getText() === local),
  );
  if (kept.length === names.size) return;
  if (kept.length === 0) {
    const end = statement.getEnd();
    const isLine = file.getFullText()[end] === "\n";
    return edits.replace(statement.getStart(), isLine ? end + 1 : end, "");
  }
  const nodes = [...names.values()].map(({ node }) => node);
  const list = kept.map(({ node }) => node.getText()).join(", ");
  edits.replace(nodes[0]!.getStart(), nodes.at(-1)!.getEnd(), list);
}
