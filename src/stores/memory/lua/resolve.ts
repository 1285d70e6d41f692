/** Finds what each name of a Lua script refers to, and which functions can be created once. */
import type {
  CallExpression,
  Chunk,
  Expression,
  FunctionDeclaration,
  Identifier,
  Node,
  Statement,
  StringCallExpression,
  TableCallExpression,
} from "luaparse";

export type Call = CallExpression | StringCallExpression | TableCallExpression;
export type Type = "number" | "string" | "boolean" | "table" | "function" | "nil" | "any";

/** A local variable of a Lua script, and its unique name in JavaScript. */
export interface Local {
  readonly js: string;
  readonly owner: FunctionDeclaration | Chunk;
  /**
   * True if the local is declared at the top level of the script. A function that uses only
   * top-level locals can be created once for all runs.
   */
  readonly isTop: boolean;
  /** All values that the script assigns to the local. `undefined` means any value. */
  readonly values: (Expression | Type | undefined)[];
  isUsed: boolean;
  isChanged: boolean;
}

interface Made {
  readonly node: FunctionDeclaration;
  readonly uses: Set<Local>;
  canBeShared: boolean;
  isSingle: boolean;
  readonly returns: (readonly Expression[])[];
}

/**
 * Lua's library functions: the name of each in the runtime, its result type, and whether it always
 * returns exactly one value.
 */
export const LIBRARY: Readonly<
  Record<string, readonly [name: string, type: Type, isOne: boolean]>
> = {
  "string.format": ["format", "string", true],
  "string.sub": ["sub", "string", true],
  "string.rep": ["rep", "string", true],
  "string.match": ["match", "any", false],
  "string.find": ["find", "any", false],
  "string.gsub": ["gsub", "any", false],
  "string.byte": ["byte", "any", false],
  "string.char": ["char", "string", true],
  "string.len": ["lengthOf", "number", true],
  "string.lower": ["lower", "string", true],
  "string.upper": ["upper", "string", true],
  "cjson.decode": ["decodeJson", "any", true],
  "cjson.encode": ["encodeJson", "string", true],
  "cmsgpack.unpack": ["unpackMessage", "any", true],
  "table.concat": ["concat", "string", true],
  "table.insert": ["insert", "nil", true],
  "table.remove": ["remove", "any", true],
  "table.sort": ["sort", "nil", true],
  "struct.pack": ["pack", "string", true],
  "struct.unpack": ["unpackStruct", "any", false],
  "redis.error_reply": ["errorReply", "table", true],
  "redis.status_reply": ["statusReply", "table", true],
  "redis.call": ["caller($c)", "any", true],
  "redis.pcall": ["protectedCaller($c)", "any", true],
  pcall: ["protectedCall", "any", false],
  error: ["fail", "nil", true],
  next: ["next", "any", false],
  rawget: ["rawGet", "any", true],
  select: ["select", "any", false],
  setmetatable: ["setMeta", "table", true],
  tonumber: ["toNumber", "any", true],
  tostring: ["toText", "string", true],
  type: ["typeOf", "string", true],
  unpack: ["unpack", "any", false],
};
const RESERVED = new Set(
  [
    "abstract arguments await boolean break byte case catch char class const continue debugger",
    "default delete do double else enum export extends false final finally float",
    "for function goto if implements import in instanceof int interface let long native",
    "new null package private protected public return short static super switch synchronized this",
    "throw throws transient true try typeof var void volatile while with yield undefined",
    "NaN Infinity Math Array Object",
  ].flatMap((words) => words.split(" ")),
);

export interface Resolved {
  readonly localOf: ReadonlyMap<Identifier, Local>;
  readonly functions: ReadonlyMap<FunctionDeclaration, Made>;
  /** Returns the function that a local always contains, if the local is never reassigned. */
  readonly functionOf: (local: Local) => Made | undefined;
  /** Returns true if an expression always has exactly one value. */
  readonly isOne: (value: Expression) => boolean;
}

/**
 * Finds the local that each name refers to, and the functions that can be created once for all
 * runs.
 */
export function resolve(chunk: Chunk): Resolved {
  const localOf = new Map<Identifier, Local>();
  const functions = new Map<FunctionDeclaration, Made>();
  const counts = new Map<string, number>();
  let scope = new Map<string, Local>();
  let depth = 0;
  const owners: (FunctionDeclaration | Chunk)[] = [chunk];

  function declare(identifier: Identifier, values: Local["values"]): Local {
    const { name } = identifier;
    const count = counts.get(name) ?? 0;
    counts.set(name, count + 1);
    const js = count === 0 && !RESERVED.has(name) ? name : `${name}$${count}`;
    const owner = owners.at(-1)!;
    const isTop = owner === chunk && depth === 1;
    const local: Local = { js, owner, isTop, values, isUsed: false, isChanged: false };
    scope.set(name, local);
    localOf.set(identifier, local);
    return local;
  }

  function use(identifier: Identifier): Local | undefined {
    const local = scope.get(identifier.name);
    if (local === undefined) return undefined;
    localOf.set(identifier, local);
    local.isUsed = true;
    for (let at = owners.length - 1; at > 0 && owners[at] !== local.owner; at--) {
      functions.get(owners[at] as FunctionDeclaration)!.uses.add(local);
    }
    return local;
  }

  function inScope(act: () => void): void {
    const outer = scope;
    scope = new Map(outer);
    depth += 1;
    act();
    depth -= 1;
    scope = outer;
  }

  function block(statements: readonly Statement[]): void {
    inScope(() => statements.forEach(visit));
  }

  function makeFunction(node: FunctionDeclaration): void {
    functions.set(node, { node, uses: new Set(), canBeShared: true, isSingle: true, returns: [] });
    owners.push(node);
    inScope(() => {
      for (const each of node.parameters) {
        if (each.type === "Identifier") declare(each, [undefined]);
      }
      node.body.forEach(visit);
    });
    owners.pop();
  }

  function assign(target: Expression, value: Expression | undefined): void {
    if (target.type !== "Identifier") return visit(target);
    const local = use(target);
    if (local === undefined) throw new Error(`the script assigns to the global ${target.name}`);
    local.isChanged = true;
    local.values.push(value);
  }

  function visit(node: Node): void {
    switch (node.type) {
      case "Identifier":
        use(node);
        return;
      case "LocalStatement": {
        node.init.forEach(visit);
        const isOpen = node.init.length > 0 && canBeMany(node.init.at(-1)!);
        for (const [index, variable] of node.variables.entries()) {
          const isMulti = isOpen && index >= node.init.length - 1 && node.variables.length > 1;
          declare(variable, [
            isMulti ? typeOfValue(node.init.at(-1)!, index) : (node.init[index] ?? "nil"),
          ]);
        }
        return;
      }
      case "AssignmentStatement": {
        node.init.forEach(visit);
        const isSame = node.variables.length === node.init.length;
        for (const [index, variable] of node.variables.entries()) {
          assign(variable, isSame ? node.init[index] : undefined);
        }
        return;
      }
      case "FunctionDeclaration":
        if (node.identifier !== null && node.isLocal) {
          declare(node.identifier as Identifier, [node]);
        } else if (node.identifier !== null) assign(node.identifier, node);
        return makeFunction(node);
      case "ForNumericStatement":
        [node.start, node.end, ...(node.step === null ? [] : [node.step])].forEach(visit);
        return inScope(() => {
          declare(node.variable, ["number"]);
          node.body.forEach(visit);
        });
      case "ForGenericStatement":
        node.iterators.forEach(visit);
        return inScope(() => {
          for (const variable of node.variables) declare(variable, [undefined]);
          node.body.forEach(visit);
        });
      case "RepeatStatement":
        return inScope(() => {
          node.body.forEach(visit);
          visit(node.condition);
        });
      case "ReturnStatement": {
        node.arguments.forEach(visit);
        const owner = owners.at(-1)!;
        if (owner !== chunk)
          functions.get(owner as FunctionDeclaration)!.returns.push(node.arguments);
        return;
      }
      case "IfStatement":
        for (const clause of node.clauses) {
          if (clause.type !== "ElseClause") visit(clause.condition);
          block(clause.body);
        }
        return;
      case "WhileStatement":
        visit(node.condition);
        return block(node.body);
      case "DoStatement":
        return block(node.body);
      case "CallStatement":
        return visit(node.expression);
      case "MemberExpression":
        return visit(node.base);
      case "IndexExpression":
        visit(node.base);
        return visit(node.index);
      case "CallExpression":
        visit(node.base);
        node.arguments.forEach(visit);
        return;
      case "StringCallExpression":
        return visit(node.base);
      case "TableCallExpression":
        visit(node.base);
        return visit(node.arguments);
      case "UnaryExpression":
        return visit(node.argument);
      case "BinaryExpression":
      case "LogicalExpression":
        visit(node.left);
        return visit(node.right);
      case "TableConstructorExpression":
        for (const field of node.fields) {
          if (field.type === "TableKey") visit(field.key);
          visit(field.value);
        }
        return;
      case "BreakStatement":
      case "StringLiteral":
      case "NumericLiteral":
      case "BooleanLiteral":
      case "NilLiteral":
      case "VarargLiteral":
        return;
      default:
        throw new Error(`cannot translate ${node.type}`);
    }
  }

  block(chunk.body);

  const functionOf = (local: Local): Made | undefined => {
    const [value] = local.values;
    if (local.isChanged || typeof value !== "object") return undefined;
    return value.type === "FunctionDeclaration" ? functions.get(value) : undefined;
  };
  const isOne = (value: Expression): boolean => {
    if (!canBeMany(value)) return true;
    if (value.type !== "CallExpression") return false;
    const callee = value.base.type === "Identifier" ? localOf.get(value.base) : undefined;
    const made = callee && functionOf(callee);
    if (made !== undefined) return made.isSingle;
    const known = libraryOf(value.base, localOf);
    return known !== undefined && (known.startsWith("math.") || LIBRARY[known]?.[2] === true);
  };
  // Starts with all functions and removes those that do not qualify. Removing one can disqualify
  // the functions that use it, so this repeats until no function is removed.
  for (let before = -1, left = 0; left !== before;) {
    before = left;
    left = 0;
    for (const made of functions.values()) {
      made.canBeShared &&= [...made.uses].every(
        (local) =>
          local.isTop || literalOf(local) !== undefined || functionOf(local)?.canBeShared === true,
      );
      made.isSingle &&= made.returns.every((values) => values.length < 2 && values.every(isOne));
      left += (made.canBeShared ? 1 : 0) + (made.isSingle ? 1 : 0);
    }
  }
  return { localOf, functions, functionOf, isOne };
}

/**
 * Returns the value of a local that never changes, if that value is a number, string or Boolean.
 */
export function literalOf({ isChanged, values: [value] }: Local): Expression | undefined {
  if (isChanged || typeof value !== "object") return undefined;
  const { type } = value;
  const isLiteral =
    type === "NumericLiteral" || type === "StringLiteral" || type === "BooleanLiteral";
  return isLiteral ? value : undefined;
}

/**
 * Returns the name of a Lua library function, such as `string.sub`. This also works if a local
 * contains the function.
 */
export function libraryOf(
  value: Expression,
  localOf: ReadonlyMap<Identifier, Local>,
): string | undefined {
  if (value.type === "Identifier") {
    const local = localOf.get(value);
    if (local === undefined) return value.name;
    const [first] = local.values;
    if (local.isChanged || typeof first !== "object" || first.type !== "MemberExpression")
      return undefined;
    return libraryOf(first, localOf);
  }
  if (value.type !== "MemberExpression" || value.base.type !== "Identifier") return undefined;
  if (localOf.has(value.base)) return undefined;
  return `${value.base.name}.${value.identifier.name}`;
}

export function canBeMany({ type }: Expression): boolean {
  return (
    type === "CallExpression" ||
    type === "StringCallExpression" ||
    type === "TableCallExpression" ||
    type === "VarargLiteral"
  );
}

/** Returns the type of one result of a function, if it is the same for each `return`. */
function typeOfValue(value: Expression, index: number): Type | undefined {
  if (value.type !== "CallExpression" || value.base.type !== "MemberExpression") return undefined;
  const { base, identifier } = value.base;
  const isUnpack =
    base.type === "Identifier" && base.name === "struct" && identifier.name === "unpack";
  return isUnpack && index < (doublesIn(value.arguments[0]) ?? 0) ? "number" : undefined;
}

/** Returns the number of doubles in a `struct` format that consists only of doubles. */
export function doublesIn(format: Expression | undefined): number | undefined {
  if (format?.type !== "StringLiteral") return undefined;
  return /^<d+$/.test(format.value) ? format.value.length - 1 : undefined;
}

/**
 * Returns the number of doubles in the format `'<dd' .. string.rep('d', n)`: those of the text, and
 * the argument `n`.
 */
export function countOfDoubles(
  format: Expression | undefined,
  localOf: ReadonlyMap<Identifier, Local>,
): { readonly least: number; readonly more: Expression } | undefined {
  if (format?.type !== "BinaryExpression" || format.operator !== "..") return undefined;
  const { left, right } = format;
  if (left.type !== "StringLiteral" || right.type !== "CallExpression") return undefined;
  if (!/^<d*$/.test(left.value)) return undefined;
  const [what, count] = right.arguments;
  const isRep = libraryOf(right.base, localOf) === "string.rep";
  const isOfDoubles = isRep && what?.type === "StringLiteral" && what.value === "d";
  return isOfDoubles && count !== undefined
    ? { least: left.value.length - 1, more: count }
    : undefined;
}
