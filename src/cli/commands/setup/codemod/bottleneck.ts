import { basename, dirname } from "node:path";
import type { Expression, NewExpression, Node, SourceFile } from "ts-morph";
import {
  commentsIn,
  kebab,
  numberOf,
  propertiesOf,
  rateText,
  timeText,
  type Edits,
} from "./edits.ts";

type Morph = typeof import("ts-morph");

/** Options that no longer apply once the code uses the buckets of Sluice. */
const OF_THE_SLUICE = ["datastore", "clientOptions", "clusterNodes", "connection", "Redis"];
const DROPPED = ["id", "timeout", "clearDatastore", "heartbeatInterval", "clientTimeout"];
const KNOWN = new Set([
  ...OF_THE_SLUICE,
  ...DROPPED,
  "minTime",
  "maxConcurrent",
  "highWater",
  "strategy",
  "penalty",
  "reservoir",
  "reservoirRefreshAmount",
  "reservoirRefreshInterval",
  "reservoirIncreaseAmount",
  "reservoirIncreaseInterval",
  "reservoirIncreaseMaximum",
  "trackDoneStatus",
  "rejectOnDrop",
]);
const FIRST_LIMITER = "create one sluice in a module of your own, and import it where you need it";

/** Rewrites the limiters of one file, if it imports Bottleneck, and their calls in all files. */
export function rewriteBottleneck(
  file: SourceFile,
  editsOf: (file: SourceFile) => Edits,
  names: Set<string>,
  morph: Morph,
): void {
  const { Node: Nodes, SyntaxKind } = morph;
  const imported = importOf(file, morph);
  if (imported === undefined) return;
  const edits = editsOf(file);
  const { className, specifier } = imported;
  const created = file
    .getDescendantsOfKind(SyntaxKind.NewExpression)
    .filter((each) => each.getExpression().getText() === className);
  let isSluiceUsed = false;
  const replaced = new Set<Node>();
  for (const limiter of created) {
    const bucket = bucketOf(limiter, { file, names, morph });
    if (typeof bucket === "string") {
      edits.todo(limiter, bucket);
      continue;
    }
    isSluiceUsed = true;
    edits.replace(limiter.getStart(), limiter.getEnd(), bucket.text);
    edits.done();
    replaced.add(limiter.getExpression());
    const [options] = limiter.getArguments();
    if (Nodes.isObjectLiteralExpression(options)) edits.keepComments(limiter, commentsIn(options));
    for (const name of bucket.imports) edits.imports.add(name);
    for (const what of bucket.todos) edits.todo(limiter, what);
    const uses = usesOf(limiter, morph);
    const isUsedInOthers = uses.some((each) => each.getSourceFile() !== file);
    if (isExported(limiter, morph) && !isUsedInOthers) {
      edits.todo(limiter, "rewrite the calls of this limiter in the files that import it");
    }
    for (const use of uses) {
      rewriteUse(use, editsOf(use.getSourceFile()), morph);
    }
    const type = declarationOf(limiter, morph)?.getTypeNode();
    if (type?.getText() === className) {
      edits.replace(type.getStart(), type.getEnd(), "Bucket");
      edits.imports.add("type Bucket");
      replaced.add(type);
    }
  }
  const isLeft = file.getDescendantsOfKind(SyntaxKind.Identifier).some((each) => {
    const isOfImport = each.getFirstAncestor(
      (parent) => Nodes.isImportDeclaration(parent) || parent === imported.statement,
    );
    const isReplaced = replaced.has(each) || replaced.has(each.getParentOrThrow());
    return each.getText() === className && isOfImport === undefined && !isReplaced;
  });
  if (isLeft) edits.replace(specifier.getStart(), specifier.getEnd(), '"sluice/bottleneck"');
  else removeStatement(imported.statement, edits);
  if (isLeft && imported.isRequire) {
    edits.replace(specifier.getEnd() + 1, specifier.getEnd() + 1, ".default");
  }
  if (isSluiceUsed) {
    edits.imports.add("createSluice");
    edits.addAfterImports(`\n// TODO(sluice): ${FIRST_LIMITER}\nconst sluice = createSluice();`);
  }
}

/** Finds the import of Bottleneck, and the name that the file gives to it. */
function importOf(file: SourceFile, { Node: Nodes, SyntaxKind }: Morph) {
  const declaration = file.getImportDeclaration(
    (each) => each.getModuleSpecifierValue() === "bottleneck",
  );
  const name = declaration?.getDefaultImport() ?? declaration?.getNamespaceImport();
  if (declaration !== undefined && name !== undefined) {
    const specifier = declaration.getModuleSpecifier();
    return {
      className: name.getText(),
      specifier,
      statement: declaration as Node,
      isRequire: false,
    };
  }
  for (const statement of file.getVariableStatements()) {
    const [variable] = statement.getDeclarations();
    const call = variable?.getInitializer();
    const isAlone = statement.getDeclarations().length === 1;
    if (!isAlone || !Nodes.isCallExpression(call) || call.getExpression().getText() !== "require") {
      continue;
    }
    const [specifier] = call.getArguments();
    const isIt = specifier?.getText().slice(1, -1) === "bottleneck";
    if (!isIt || variable!.getNameNode().getKind() !== SyntaxKind.Identifier) continue;
    return {
      className: variable!.getName(),
      specifier: specifier!,
      statement: statement as Node,
      isRequire: true,
    };
  }
  return undefined;
}

function removeStatement(statement: Node, edits: Edits): void {
  const text = statement.getSourceFile().getFullText();
  const end = statement.getEnd();
  edits.replace(statement.getStart(), text[end] === "\n" ? end + 1 : end, "");
}

interface BucketText {
  readonly text: string;
  readonly imports: readonly string[];
  readonly todos: readonly string[];
}

/** Returns the bucket that replaces a limiter, or why a person has to decide. */
function bucketOf(
  limiter: NewExpression,
  { file, names, morph }: { file: SourceFile; names: Set<string>; morph: Morph },
): BucketText | string {
  const { Node: Nodes } = morph;
  const declaration = declarationOf(limiter, morph);
  const name = declaration?.getNameNode();
  if (declaration === undefined || name === undefined) {
    return "this limiter has no name in the code, so its calls were not rewritten";
  }
  const [given, ...others] = limiter.getArguments();
  if (!Nodes.isObjectLiteralExpression(given) || others.length > 0) {
    return "the options of this limiter are not written out here";
  }
  const options = propertiesOf(given, morph);
  const unknown = [...(options?.keys() ?? [])].find((key) => !KNOWN.has(key));
  if (options === undefined || unknown !== undefined) {
    return "the options of this limiter are not all known here";
  }
  const bucket = uniqueName(kebab(`${stemOf(file)} ${name.getText()}`), names);
  return textOfBucket(literalOf(options.get("id")) ?? JSON.stringify(bucket), options);
}

function textOfBucket(name: string, options: ReadonlyMap<string, Expression>): BucketText | string {
  const todos: string[] = [];
  const isSet = (key: string): boolean =>
    options.has(key) && !["null", "undefined"].includes(options.get(key)!.getText());
  const get = (key: string): Expression => options.get(key)!;
  const windows: string[] = [];
  const imports: string[] = [];
  if (isSet("reservoirRefreshAmount") && isSet("reservoirRefreshInterval")) {
    const interval = timeText(get("reservoirRefreshInterval"));
    windows.push(`slidingLog(${get("reservoirRefreshAmount").getText()}, ${interval})`);
    imports.push("slidingLog");
  } else if (isSet("reservoirIncreaseAmount") && isSet("reservoirIncreaseInterval")) {
    const capacity = options.get("reservoirIncreaseMaximum") ?? options.get("reservoir");
    const refill = rateText(get("reservoirIncreaseAmount"), get("reservoirIncreaseInterval"));
    if (capacity === undefined) return "this reservoir has no maximum; choose one";
    windows.push(`tokenBucket({ capacity: ${capacity.getText()}, refill: ${refill} })`);
    imports.push("tokenBucket");
  } else if (isSet("reservoir")) {
    return "a reservoir that only code fills has no counterpart; use sluice/bottleneck or a budget";
  }
  const paces: string[] = [];
  const isPaced = isSet("minTime") && numberOf(options.get("minTime")) !== 0;
  const inList = windows.length > 0;
  if (isPaced) {
    const rate = rateText(1, get("minTime"));
    paces.push(inList ? `leakyBucket(${rate})` : `rate: ${rate}`);
    if (inList) imports.push("leakyBucket");
  }
  if (isSet("maxConcurrent")) {
    const max = get("maxConcurrent").getText();
    paces.push(inList ? `concurrency(${max})` : `concurrency: ${max}`);
    if (inList) imports.push("concurrency");
  }
  if (windows.length + paces.length === 0) return "this limiter has no limit";
  const parts = inList ? [`limits: [${[...windows, ...paces].join(", ")}]`] : paces;
  if (isSet("highWater")) {
    parts.push(`maxWaiting: ${get("highWater").getText()}`);
    todos.push(
      "above maxWaiting, new calls fail with LineFullError; waiting calls are never dropped",
    );
  }
  if (OF_THE_SLUICE.some(isSet)) todos.push("pass the address of Redis to createSluice({ redis })");
  if (isSet("rejectOnDrop")) todos.push("calls that are refused always reject");
  return { text: `sluice.bucket(${name}, { ${parts.join(", ")} })`, imports, todos };
}

/** The variable or property that a limiter is assigned to. */
function declarationOf(limiter: NewExpression, { Node: Nodes }: Morph) {
  const parent = limiter.getParent();
  if (Nodes.isVariableDeclaration(parent) || Nodes.isPropertyDeclaration(parent)) return parent;
  if (!Nodes.isBinaryExpression(parent) || parent.getRight() !== limiter) return undefined;
  const target = parent.getLeft();
  if (!Nodes.isPropertyAccessExpression(target) && !Nodes.isIdentifier(target)) return undefined;
  const [declaration, ...others] = target.getSymbol()?.getDeclarations() ?? [];
  if (others.length > 0) return undefined;
  const isKnown =
    Nodes.isPropertyDeclaration(declaration) || Nodes.isVariableDeclaration(declaration);
  return isKnown ? declaration : undefined;
}

/** True if other files may import a limiter. */
function isExported(limiter: NewExpression, morph: Morph): boolean {
  const { Node: Nodes } = morph;
  const declaration = declarationOf(limiter, morph);
  if (!Nodes.isVariableDeclaration(declaration)) return false;
  if (declaration.isExported()) return true;
  return /\bmodule\.exports\b/.test(declaration.getSourceFile().getFullText());
}

/** The places in all files that use a limiter. */
function usesOf(limiter: NewExpression, morph: Morph): Node[] {
  const { Node: Nodes } = morph;
  const name = declarationOf(limiter, morph)?.getNameNode();
  if (name === undefined || !Nodes.isReferenceFindable(name)) return [];
  return name
    .findReferencesAsNodes()
    .filter((each) => each !== name)
    .map((each) => {
      const parent = each.getParent();
      const isMember = Nodes.isPropertyAccessExpression(parent) && parent.getNameNode() === each;
      return isMember ? parent : each;
    })
    .filter((each) => {
      const parent = each.getParent();
      const isTarget = Nodes.isBinaryExpression(parent) && parent.getLeft() === each;
      const isOfModule =
        Nodes.isExportSpecifier(parent) ||
        Nodes.isExportAssignment(parent) ||
        Nodes.isImportSpecifier(parent) ||
        Nodes.isImportClause(parent) ||
        isCommonJsModule(each, morph);
      return !isTarget && !isOfModule;
    });
}

/** True if a name is the target of `require()`, or what `module.exports` is set to. */
function isCommonJsModule(name: Node, { Node: Nodes }: Morph): boolean {
  const parent = name.getParent();
  if (Nodes.isVariableDeclaration(parent)) {
    return parent.getInitializer()?.getText().startsWith("require(") === true;
  }
  return Nodes.isBinaryExpression(parent) && parent.getLeft().getText() === "module.exports";
}

function rewriteUse(use: Node, edits: Edits, morph: Morph): void {
  const { Node: Nodes } = morph;
  const access = use.getParent();
  const call = access?.getParent();
  const isCall =
    Nodes.isPropertyAccessExpression(access) &&
    access.getExpression() === use &&
    Nodes.isCallExpression(call) &&
    call.getExpression() === access;
  if (!isCall) return edits.todo(use, "the bucket is used here in a way that was not rewritten");
  const method = access.getNameNode();
  const args = call.getArguments();
  const rename = (name: string): void => {
    edits.replace(method.getStart(), method.getEnd(), name);
    edits.done();
  };
  switch (method.getText()) {
    case "schedule":
      return rewriteSchedule(args, { edits, rename, use, morph });
    case "wrap":
      return rename("throttled");
    case "queued":
      if (args.length > 0) break;
      edits.replace(method.getStart(), call.getEnd(), "waiting");
      return edits.done();
    default:
  }
  const advice = ADVICE[method.getText()] ?? "has no counterpart";
  return edits.todo(use, `${method.getText()}() ${advice}`);
}

/** What to do about methods that are not rewritten. */
const ADVICE: Readonly<Record<string, string>> = {
  on: "has other events here; for retries, use a queue with attempts, or bucket.fetch for a 429",
  once: "has other events here; for retries, use a queue with attempts, or bucket.fetch for a 429",
  updateSettings: "is configure() here, which changes the limits of all processes",
  stop: "is sluice.close() here; await your own calls first",
  disconnect: "is sluice.close() here; await your own calls first",
  chain: "has no counterpart; call one bucket inside the other, or put all limits into one bucket",
  submit: "takes callbacks; use run() with a promise",
  running: "is in await bucket.peek()",
  counts: "is bucket.waiting, and await bucket.peek()",
  check: "is await bucket.tryDraw(), which also takes the slot",
  currentReservoir: "is in await bucket.peek()",
  incrementReservoir: "has no counterpart; use sluice/bottleneck, or grant() of a budget",
  ready: "is not needed",
};

function rewriteSchedule(
  args: readonly Node[],
  {
    edits,
    rename,
    use,
    morph,
  }: { edits: Edits; rename: (name: string) => void; use: Node; morph: Morph },
): void {
  const { Node: Nodes } = morph;
  const [first] = args;
  const isFunction = Nodes.isArrowFunction(first) || Nodes.isFunctionExpression(first);
  let options = "";
  let rest = args;
  if (Nodes.isObjectLiteralExpression(first)) {
    const read = jobOptions(propertiesOf(first, morph));
    if (read === undefined || args.length < 2) {
      return edits.todo(
        use,
        "schedule() is run(fn, options); these options are not all known here",
      );
    }
    for (const what of read.todos) edits.todo(use, what);
    options = read.text;
    rest = args.slice(1);
    edits.replace(first.getStart(), rest[0]!.getStart(), "");
  } else if (!isFunction && args.length > 1 && isObjectType(first!)) {
    return edits.todo(use, "schedule() is run(fn, options); these options are not all known here");
  }
  rename("run");
  const [fn, ...passed] = rest;
  const last = rest.at(-1)!;
  if (passed.length > 0) {
    const needsParentheses = Nodes.isArrowFunction(fn) || Nodes.isFunctionExpression(fn);
    edits.replace(fn!.getStart(), fn!.getStart(), needsParentheses ? "() => (" : "() => ");
    edits.replace(fn!.getEnd(), passed[0]!.getStart(), needsParentheses ? ")(" : "(");
    edits.replace(last.getEnd(), last.getEnd(), ")");
  }
  if (options !== "") edits.replace(last.getEnd(), last.getEnd(), `, { ${options} }`);
}

function isObjectType(node: Node): boolean {
  const type = node.getType();
  return type.getCallSignatures().length === 0;
}

function jobOptions(
  options: ReadonlyMap<string, Expression> | undefined,
): { readonly text: string; readonly todos: readonly string[] } | undefined {
  const parts: string[] = [];
  const todos: string[] = [];
  for (const [name, value] of options ?? []) {
    const number = numberOf(value);
    if (name === "priority" && number !== undefined) {
      parts.push(`priority: ${JSON.stringify(priorityOf(number))}`);
    } else if (name === "weight" && number === 1) continue;
    else if (name === "weight") {
      parts.push(`cost: ${value.getText()}`);
      todos.push("cost counts for rates and windows; a rate also needs a burst of that size");
    } else if (name === "expiration") {
      todos.push("calls have no expiration; pass AbortSignal.timeout() to the call itself");
    } else if (name !== "id") return undefined;
  }
  return options === undefined ? undefined : { text: parts.join(", "), todos };
}

function priorityOf(number: number): string {
  if (number <= 1) return "critical";
  if (number <= 4) return "high";
  return number === 5 ? "normal" : "low";
}

function literalOf(expression: Expression | undefined): string | undefined {
  const text = expression?.getText();
  return text !== undefined && /^["'][^"'{}:]+["']$/.test(text) ? text : undefined;
}

function stemOf(file: SourceFile): string {
  const stem = basename(file.getFilePath()).replace(/\.[^.]+$/, "");
  return stem === "index" ? basename(dirname(file.getFilePath())) : stem;
}

/** Names in the run are different, because buckets with the same name share their state. */
function uniqueName(wanted: string, names: Set<string>): string {
  let name = wanted;
  for (let number = 2; names.has(name); number += 1) name = `${wanted}-${number}`;
  names.add(name);
  return name;
}
