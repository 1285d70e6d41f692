import type {
  ArrowFunction,
  Expression,
  FunctionDeclaration,
  FunctionExpression,
  NewExpression,
  Node,
  SourceFile,
} from "ts-morph";
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

/** Reads the rates of the workers that will be rewritten. Queues in other files need these rates too. */
export function readRates(file: SourceFile, rates: RatesOfQueues, morph: Morph): void {
  const imported = importOf(file, morph);
  for (const worker of newOf(file, imported?.names.get("Worker")?.local, morph)) {
    const plan = planOf(worker, morph);
    if (typeof plan !== "string") rates.set(nameOf(plan.name, morph), plan.rate);
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

interface WorkerPlan {
  readonly name: Node;
  readonly processor: Node;
  readonly options: ReadonlyMap<string, Expression>;
  readonly rate: string;
  readonly variable: Node | undefined;
}

/** Returns the parts of a worker that can be rewritten, or why a person has to decide. */
function planOf(worker: NewExpression, morph: Morph): WorkerPlan | string {
  const [name, processor, given] = worker.getArguments();
  const options = optionsOf(given, morph);
  const rate = rateOf(given, morph);
  if (name === undefined || processor === undefined) return "this worker has no processor";
  if (options === undefined) return "the options of this worker are not written out here";
  const unknown = [...options.keys()].find((key) => !OF_WORKERS.has(key));
  if (unknown !== undefined) return `the option ${unknown} of this worker has to be translated`;
  if (rate === undefined) {
    const hasLimiter = options.has("limiter");
    const what = hasLimiter
      ? "the limiter of this worker is not written out here"
      : "this worker has no limiter";
    return `${what}; choose the rate of its bucket`;
  }
  const variable = variableOf(worker, morph);
  if (isNeededElsewhere(variable, morph)) return "other files use this worker";
  return { name, processor, options, rate, variable };
}

/** True if other files do more with a worker than close it. Workers of Sluice have `close()` too. */
function isNeededElsewhere(variable: Node | undefined, morph: Morph): boolean {
  if (variable === undefined || !isUsedElsewhere(variable, morph)) return false;
  const closed = usesOf(variable, morph).filter(({ method }) => method === "close");
  return referencesOf(variable, morph)
    .filter((each) => each.getSourceFile() !== variable.getSourceFile())
    .filter((each) => !morph.Node.isImportSpecifier(each.getParent()))
    .some((each) => closed.every(({ node }) => node !== each));
}

/** Returns why a person has to decide, or undefined after the change. */
function rewriteWorker(
  worker: NewExpression,
  edits: Edits,
  morph: Morph,
  gone: Node[],
): string | undefined {
  const { Node: Nodes } = morph;
  const plan = planOf(worker, morph);
  if (typeof plan === "string") return plan;
  const { name, processor, options, rate, variable } = plan;
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
  markJobUses(processor, worker, edits, morph);
  edits.todo(worker, "let the old worker finish the jobs of the old queue");
  if (options.has("connection")) {
    edits.todo(worker, "pass the address of Redis to createSluice({ redis })");
  }
  for (const use of usesOf(variable, morph)) {
    if (use.method === "close" || rewriteListener(use, edits, morph)) continue;
    edits.todo(use.node, `worker.${use.method}() differs; see "Migrate"`);
  }
  markOtherUses(variable, edits, morph);
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
  if (rate === undefined) return "no worker of this queue was rewritten; this queue stays with it";
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
  markOtherUses(variable, edits, morph);
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
function usesOf(variable: Node | undefined, morph: Morph): Use[] {
  const { Node: Nodes } = morph;
  return referencesOf(variable, morph).flatMap((each) => {
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

/** The events of workers that only have another name, with the names of what a listener gets, in BullMQ's order. */
const EVENTS = new Map<string, readonly [event: string, ...args: readonly string[]]>([
  ["active", ["active", "job"]],
  ["completed", ["done", "job", "result"]],
  ["failed", ["failed", "job", "error"]],
  ["error", ["error", "error"]],
  ["stalled", ["stalled", "jobId"]],
]);

/** Rewrites a listener of a worker. Returns false if it is not known here. */
function rewriteListener({ node, method, args }: Use, edits: Edits, morph: Morph): boolean {
  const { Node: Nodes, SyntaxKind } = morph;
  const [name, listener] = args;
  if (method !== "on" || !Nodes.isStringLiteral(name)) return false;
  const [event, ...fields] = EVENTS.get(name.getLiteralText()) ?? [];
  const isShadowed = fields.some((each) => listener?.getText().split(".")[0] === each);
  if (event !== undefined && isReference(listener, morph) && !isShadowed) {
    const [signature] = listener.getType().getCallSignatures();
    const taken = fields.slice(0, signature?.getParameters().length).join(", ");
    const call = `${listener.getText()}(${taken})`;
    edits.replace(name.getStart() + 1, name.getEnd() - 1, event);
    const given = taken === "" ? "()" : `({ ${taken} })`;
    edits.replace(listener.getStart(), listener.getEnd(), `${given} => ${call}`);
    edits.done();
    if (fields[0] === "job") markJobUses(listener, node, edits, morph);
    return true;
  }
  if (!Nodes.isArrowFunction(listener)) return false;
  const given = listener.getParameters().map((each) => each.getText());
  const isPlain = given.every((each) => /^[\w$]+$/.test(each));
  if (event === undefined || given.length > fields.length || !isPlain) return false;
  edits.replace(name.getStart() + 1, name.getEnd() - 1, event);
  if (given.length > 0) {
    const parts = given.map((each, i) => (each === fields[i] ? each : `${fields[i]}: ${each}`));
    const text = `{ ${parts.join(", ")} }`;
    const hasParens = listener.getFirstChildByKind(SyntaxKind.OpenParenToken) !== undefined;
    const [first, last] = [listener.getParameters()[0]!, listener.getParameters().at(-1)!];
    edits.replace(first.getStart(), last.getEnd(), hasParens ? text : `(${text})`);
  }
  edits.done();
  if (fields[0] === "job") markJobUses(listener, node, edits, morph);
  return true;
}

function isReference(node: Node | undefined, { Node: Nodes }: Morph): node is Node {
  return Nodes.isIdentifier(node) || Nodes.isPropertyAccessExpression(node);
}

const SAME_IN_JOBS = new Set(["data", "name", "id"]);

/** Marks where a function uses more of its job than is the same in Sluice, or `place` if the function is not here. */
function markJobUses(handler: Node, place: Node, edits: Edits, morph: Morph): void {
  const { Node: Nodes } = morph;
  const known = functionOf(handler, morph);
  if (known === undefined) {
    return edits.todo(place, "check that the handler only uses data, name and id of its job");
  }
  const what = "only data, name and id of a job are the same in Sluice";
  const job = known.getParameters()[0]?.getNameNode();
  if (Nodes.isObjectBindingPattern(job)) {
    const names = job
      .getElements()
      .map((each) => each.getPropertyNameNode()?.getText() ?? each.getName());
    if (names.some((each) => !SAME_IN_JOBS.has(each))) edits.todo(known, what);
  }
  if (!Nodes.isIdentifier(job)) return;
  for (const each of referencesOf(job, morph)) {
    const parent = each.getParent();
    const isOther = each.getSourceFile() !== job.getSourceFile();
    const isSame = Nodes.isPropertyAccessExpression(parent) && SAME_IN_JOBS.has(parent.getName());
    if (!isOther && !isSame) edits.todo(each, what);
  }
}

/** The function that an expression stands for, if it is in the same file. */
function functionOf(
  handler: Node,
  { Node: Nodes }: Morph,
): ArrowFunction | FunctionExpression | FunctionDeclaration | undefined {
  const definition = Nodes.isIdentifier(handler) ? handler.getDefinitionNodes()[0] : handler;
  const found = Nodes.isVariableDeclaration(definition) ? definition.getInitializer() : definition;
  const isFunction =
    Nodes.isArrowFunction(found) ||
    Nodes.isFunctionExpression(found) ||
    Nodes.isFunctionDeclaration(found);
  return isFunction && found.getSourceFile() === handler.getSourceFile() ? found : undefined;
}

/** The places that name a variable, without its declaration. */
function referencesOf(variable: Node | undefined, { Node: Nodes }: Morph): Node[] {
  if (variable === undefined || !Nodes.isReferenceFindable(variable)) return [];
  return variable.findReferencesAsNodes().filter((each) => each !== variable);
}

/** Marks the places of this file that pass a variable on, because the code that gets it is not known here. */
function markOtherUses(variable: Node | undefined, edits: Edits, morph: Morph): void {
  for (const each of referencesOf(variable, morph)) {
    const parent = each.getParent();
    const isMember = morph.Node.isPropertyAccessExpression(parent) && parent.getNameNode() === each;
    const holder = isMember ? parent.getParent() : parent;
    const isHere = each.getSourceFile() === variable!.getSourceFile();
    if (!isHere || morph.Node.isPropertyAccessExpression(holder)) continue;
    edits.todo(each, `${each.getText()} is of Sluice now; check the code that uses it here`);
  }
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
  const { Node: Nodes, SyntaxKind } = morph;
  const uses = file
    .getDescendantsOfKind(SyntaxKind.Identifier)
    .filter((each) => each.getFirstAncestor((parent) => parent === statement) === undefined)
    .filter((each) => !gone.some((node) => node === each || each.getAncestors().includes(node)));
  const used = [...names.values()].filter(({ local }) =>
    uses.some((each) => each.getText() === local),
  );
  const jobs = uses.filter((each) => each.getText() === "Job").map((each) => each.getParent());
  const isSame = jobs.every(
    (each) => Nodes.isTypeReference(each) && each.getTypeArguments().length <= 1,
  );
  const hasWorkers = used.some(({ node }) => node.getText() === "Worker");
  const moved = isSame && !hasWorkers && Nodes.isImportDeclaration(statement) ? "Job" : undefined;
  const kept = used.filter(({ node }) => node.getText() !== moved);
  if (kept.length < used.length) edits.imports.add("type Job");
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
