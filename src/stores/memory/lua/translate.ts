import luaparse, {
  type CallExpression,
  type Chunk,
  type Expression,
  type FunctionDeclaration,
  type Identifier,
  type Node,
  type Statement,
  type StringCallExpression,
  type TableCallExpression,
  type TableConstructorExpression,
} from "luaparse";
import * as runtime from "./runtime.ts";

type Call = CallExpression | StringCallExpression | TableCallExpression;
type Type = "number" | "string" | "boolean" | "table" | "function" | "nil" | "any";

/** A local variable of a Lua script, and its unique name in JavaScript. */
interface Local {
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

const OPERATORS: Readonly<Record<string, string>> = { "==": "===", "~=": "!==", "^": "**" };
const MATH: Readonly<Record<string, string>> = {
  floor: "Math.floor",
  ceil: "Math.ceil",
  max: "Math.max",
  min: "Math.min",
  abs: "Math.abs",
  sqrt: "Math.sqrt",
};
/**
 * Lua's library functions: the name of each in the runtime, its result type, and whether it always
 * returns exactly one value.
 */
const LIBRARY: Readonly<Record<string, readonly [name: string, type: Type, isOne: boolean]>> = {
  "string.format": ["format", "string", true],
  "string.sub": ["sub", "string", true],
  "string.rep": ["rep", "string", true],
  "string.len": ["lengthOf", "number", true],
  "string.match": ["match", "any", false],
  "string.find": ["find", "any", false],
  "string.gsub": ["gsub", "any", false],
  "string.lower": ["lower", "string", true],
  "string.upper": ["upper", "string", true],
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

/**
 * Translates a Lua 5.1 script to the text of a JavaScript function. That function takes the runtime
 * (`runtime.ts`) and returns the translated script. The translated script is a function of KEYS,
 * ARGV and the Redis commands.
 *
 * `Value`, `Table` and `Values` describe how Lua values look in JavaScript. Two things differ from
 * Lua. Arithmetic on nil results in NaN, where Lua raises an error. A metatable's `__index` works
 * only for keys in brackets.
 */
export function translate(source: string): string {
  const chunk = luaparse.parse(source, {
    luaVersion: "5.1",
    encodingMode: "pseudo-latin1",
    comments: false,
  });
  const resolved = resolve(chunk);
  return emit(chunk, resolved);
}

interface Resolved {
  readonly localOf: ReadonlyMap<Identifier, Local>;
  readonly functions: ReadonlyMap<FunctionDeclaration, Made>;
  /** Returns the function that a local always contains, if the local is never reassigned. */
  readonly functionOf: (local: Local) => Made | undefined;
}

/**
 * Finds the local that each name refers to, and the functions that can be created once for all
 * runs.
 */
function resolve(chunk: Chunk): Resolved {
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
  const isAlwaysOne = (value: Expression): boolean => {
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
      made.isSingle &&= made.returns.every(
        (values) => values.length < 2 && values.every(isAlwaysOne),
      );
      left += (made.canBeShared ? 1 : 0) + (made.isSingle ? 1 : 0);
    }
  }
  return { localOf, functions, functionOf };
}

/**
 * Returns the value of a local that never changes, if that value is a number, string or Boolean.
 */
function literalOf({ isChanged, values: [value] }: Local): Expression | undefined {
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
function libraryOf(value: Expression, localOf: ReadonlyMap<Identifier, Local>): string | undefined {
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

/** Yields the field names that are written in a script. */
function* fieldsOf(chunk: Chunk): Generator<string> {
  const nodes: unknown[] = [chunk];
  for (let node = nodes.pop(); node !== undefined; node = nodes.pop()) {
    if (typeof node !== "object" || node === null) continue;
    const { type, identifier, key } = node as Record<string, { readonly name?: string } | string>;
    if (type === "MemberExpression") yield (identifier as { readonly name: string }).name;
    if (type === "TableKeyString") yield (key as { readonly name: string }).name;
    nodes.push(...Object.values(node));
  }
}

function canBeMany({ type }: Expression): boolean {
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
function doublesIn(format: Expression | undefined): number | undefined {
  if (format?.type !== "StringLiteral") return undefined;
  return /^<d+$/.test(format.value) ? format.value.length - 1 : undefined;
}

/** Returns the argument `n` of the format `'<' .. string.rep('d', n)`. */
function countOfDoubles(
  format: Expression | undefined,
  localOf: ReadonlyMap<Identifier, Local>,
): Expression | undefined {
  if (format?.type !== "BinaryExpression" || format.operator !== "..") return undefined;
  const { left, right } = format;
  if (left.type !== "StringLiteral" || left.value !== "<" || right.type !== "CallExpression")
    return undefined;
  const [what, count] = right.arguments;
  const isRep = libraryOf(right.base, localOf) === "string.rep";
  return isRep && what?.type === "StringLiteral" && what.value === "d" ? count : undefined;
}

function emit(chunk: Chunk, { localOf, functions, functionOf }: Resolved): string {
  const shared: string[] = [];
  const nameOf = new Map<FunctionDeclaration, string>();
  const typing = new Set<Local>();
  let temps: string[] = [];
  let unique = 0;

  function temp(): string {
    const name = `$${(unique += 1)}`;
    temps.push(name);
    return name;
  }

  function typeOfLocal(local: Local): Type {
    // A local that refers to itself returns "nil" here, so its other values decide its type.
    if (typing.has(local)) return "nil";
    typing.add(local);
    let type: Type | undefined;
    for (const value of local.values) {
      const own = value === undefined ? "any" : typeof value === "string" ? value : typeOf(value);
      if (value !== undefined && typeof value === "object" && mentions(value)) continue;
      type = type === undefined || type === own ? own : "any";
    }
    typing.delete(local);
    return type ?? "any";

    function mentions(value: Expression): boolean {
      return value.type === "Identifier" && localOf.get(value) === local;
    }
  }

  function typeOf(node: Expression): Type {
    switch (node.type) {
      case "StringLiteral":
        return "string";
      case "NumericLiteral":
        return "number";
      case "BooleanLiteral":
        return "boolean";
      case "NilLiteral":
        return "nil";
      case "TableConstructorExpression":
        return "table";
      case "FunctionDeclaration":
        return "function";
      case "UnaryExpression":
        return node.operator === "not" ? "boolean" : "number";
      case "BinaryExpression":
        if (node.operator === "..") return "string";
        return /^[=~<>]/.test(node.operator) ? "boolean" : "number";
      case "LogicalExpression": {
        const left = typeOf(node.left);
        const right = typeOf(node.right);
        if (left === right) return left;
        if (node.operator === "or" && node.left.type === "LogicalExpression") {
          // The pattern `a and b or c`, where `b` is never false.
          const { operator, right: middle } = node.left;
          if (operator === "and" && typeOf(middle) === right && isTrue(right)) return right;
        }
        return "any";
      }
      case "Identifier": {
        const local = localOf.get(node);
        if (local === undefined) return "any";
        return typeOfLocal(local);
      }
      case "CallExpression": {
        const known = libraryOf(node.base, localOf);
        if (known === undefined) return "any";
        if (Object.hasOwn(MATH, known.replace("math.", ""))) return "number";
        return LIBRARY[known]?.[1] ?? "any";
      }
      case "MemberExpression":
        return libraryOf(node, localOf) === "math.huge" ? "number" : "any";
      default:
        return "any";
    }
  }

  /** True if a value of this type is never nil or false. */
  function isTrue(type: Type): boolean {
    return type === "number" || type === "string" || type === "table" || type === "function";
  }

  function number(node: Expression): string {
    return typeOf(node) === "number" ? one(node) : `+${one(node)}`;
  }

  function text(node: Expression): string {
    return typeOf(node) === "string" ? one(node) : `$text(${one(node)})`;
  }

  /**
   * Translates an expression to a condition. The condition is true unless the value is nil or
   * false.
   */
  function test(node: Expression): string {
    if (node.type === "LogicalExpression") {
      const operator = node.operator === "and" ? "&&" : "||";
      return `(${test(node.left)} ${operator} ${test(node.right)})`;
    }
    if (node.type === "UnaryExpression" && node.operator === "not")
      return `!${test(node.argument)}`;
    const type = typeOf(node);
    if (type === "boolean") return one(node);
    if (type === "nil" && node.type === "NilLiteral") return "false";
    if (node.type === "Identifier") {
      const name = one(node);
      return `(${name} !== undefined && ${name} !== false)`;
    }
    return `$isTrue(${one(node)})`;
  }

  /** Translates an expression to one value. */
  function one(node: Expression): string {
    switch (node.type) {
      case "Identifier":
        return identifier(node);
      case "StringLiteral":
        return JSON.stringify(node.value);
      case "NumericLiteral":
        return node.value === Infinity ? "Infinity" : String(node.value);
      case "BooleanLiteral":
        return String(node.value);
      case "NilLiteral":
        return "undefined";
      case "VarargLiteral":
        return "$rest[0]";
      case "FunctionDeclaration":
        return functionText(node);
      case "TableConstructorExpression":
        return table(node);
      case "MemberExpression": {
        const known = libraryOf(node, localOf);
        if (known === "math.huge") return "Infinity";
        if (known?.startsWith("math.")) return MATH[node.identifier.name]!;
        if (known !== undefined && LIBRARY[known]) return libraryName(known);
        return `${one(node.base)}.$${node.identifier.name}`;
      }
      case "IndexExpression":
        return `$get(${one(node.base)}, ${one(node.index)})`;
      case "UnaryExpression":
        if (node.operator === "not") return `!${test(node.argument)}`;
        if (node.operator === "#") return `$lengthOf(${one(node.argument)})`;
        return `(-${one(node.argument)})`;
      case "BinaryExpression":
        return binary(node.operator, node.left, node.right);
      case "LogicalExpression":
        return logical(node.operator, node.left, node.right);
      default: {
        const many = call(node as Call);
        return isOne(node) ? many : `$first(${many})`;
      }
    }
  }

  function identifier(node: Identifier): string {
    const local = localOf.get(node);
    if (local === undefined) {
      if (node.name === "KEYS" || node.name === "ARGV") return node.name;
      if (!LIBRARY[node.name]) throw new Error(`the global ${node.name} is not supported`);
      return libraryName(node.name);
    }
    const literal = literalOf(local);
    if (literal !== undefined) return one(literal);
    return local.js;
  }

  function libraryName(known: string): string {
    const [name] = LIBRARY[known]!;
    return `$${name}`;
  }

  function binary(operator: string, left: Expression, right: Expression): string {
    if (operator === "..") return `(${text(left)} + ${text(right)})`;
    if (operator === "%") return `$modulo(${one(left)}, ${one(right)})`;
    if (operator === "+") return `(${number(left)} + ${number(right)})`;
    return `(${one(left)} ${OPERATORS[operator] ?? operator} ${one(right)})`;
  }

  function logical(operator: "and" | "or", left: Expression, right: Expression): string {
    if (operator === "or" && left.type === "LogicalExpression" && left.operator === "and") {
      if (isTrue(typeOf(left.right))) {
        return `(${test(left.left)} ? ${one(left.right)} : ${one(right)})`;
      }
    }
    const type = typeOf(left);
    if (type === "boolean")
      return `(${one(left)} ${operator === "and" ? "&&" : "||"} ${one(right)})`;
    if (type === "table" || type === "function") {
      // JavaScript's operators are correct here, because the value is never falsy in JavaScript.
      return `(${one(left)} ${operator === "and" ? "&&" : "||"} ${one(right)})`;
    }
    const isPlain = left.type === "Identifier";
    const name = isPlain ? one(left) : temp();
    const value = isPlain ? name : `(${name} = ${one(left)})`;
    return operator === "and"
      ? `(${value} === undefined || ${name} === false ? ${name} : ${one(right)})`
      : `(${value} !== undefined && ${name} !== false ? ${name} : ${one(right)})`;
  }

  function isOne(node: Expression): boolean {
    if (!canBeMany(node)) return true;
    if (node.type !== "CallExpression") return false;
    const callee = node.base.type === "Identifier" ? localOf.get(node.base) : undefined;
    const made = callee && functionOf(callee);
    if (made !== undefined) return made.isSingle;
    const known = libraryOf(node.base, localOf);
    return known !== undefined && (known.startsWith("math.") || LIBRARY[known]?.[2] === true);
  }

  /** Translates an expression list to array elements. */
  function values(nodes: readonly Expression[]): string {
    return nodes
      .map((node, index) => {
        const isOpen = index === nodes.length - 1 && canBeMany(node) && !isOne(node);
        return isOpen ? `...$list(${many(node)})` : one(node);
      })
      .join(", ");
  }

  /** Translates an expression list to an array. */
  function array(nodes: readonly Expression[]): string {
    const [only] = nodes;
    const isOpen = nodes.length === 1 && canBeMany(only!) && !isOne(only!);
    return isOpen ? `$list(${many(only!)})` : `[${values(nodes)}]`;
  }

  /** Translates an expression to one value, or to an array of several values. */
  function many(node: Expression): string {
    if (node.type === "VarargLiteral") return "$rest";
    return canBeMany(node) ? call(node as Call) : one(node);
  }

  function call(node: Call): string {
    const given =
      node.type === "CallExpression"
        ? node.arguments
        : [node.type === "StringCallExpression" ? node.argument : node.arguments];
    const known = libraryOf(node.base, localOf);
    if (known?.startsWith("math.")) return `${MATH[known.slice("math.".length)]}(${values(given)})`;
    if (known === "redis.call") {
      const [command, ...operands] = given;
      if (command?.type === "StringLiteral") {
        return `$c.${command.value.toUpperCase()}(${values(operands)})`;
      }
    }
    if (known === "struct.pack" || known === "struct.unpack") {
      const [format, ...operands] = given;
      const count = doublesIn(format) ?? countOfDoubles(format, localOf);
      if (count !== undefined && known === "struct.pack") return `$packDoubles(${array(operands)})`;
      if (count !== undefined && operands.length === 1) {
        const text = typeof count === "number" ? String(count) : one(count);
        return `$unpackDoubles(${text}, ${one(operands[0]!)})`;
      }
    }
    if (node.base.type === "MemberExpression" && node.base.indexer === ":") {
      const { base, identifier: method } = node.base;
      return `$method(${one(base)}, ${JSON.stringify(method.name)}, ${array(given)})`;
    }
    return `${one(node.base)}(${values(given)})`;
  }

  function table({ fields }: TableConstructorExpression): string {
    const items: Expression[] = [];
    const named: string[] = [];
    const keyed: string[] = [];
    for (const field of fields) {
      if (field.type === "TableValue") items.push(field.value);
      else if (field.type === "TableKeyString")
        named.push(`$${field.key.name}: ${one(field.value)}`);
      else keyed.push(`[${one(field.key)}, ${one(field.value)}]`);
    }
    const last = items.at(-1);
    const isSafe = last !== undefined && isTrue(typeOf(last));
    const list = items.length === 0 ? "$none" : isSafe ? array(items) : `$trim(${array(items)})`;
    const made = `{ a: ${list}, h: undefined, m: undefined${named.map((each) => `, ${each}`).join("")} }`;
    return keyed.length === 0 ? made : `$fill(${made}, [${keyed.join(", ")}])`;
  }

  function functionText(node: FunctionDeclaration): string {
    const { canBeShared } = functions.get(node)!;
    const found = nameOf.get(node);
    if (found !== undefined) return found;
    if (!canBeShared) return `function ${parametersAndBody(node)}`;
    const name = `$f${(unique += 1)}`;
    nameOf.set(node, name);
    shared.push(`function ${name}${parametersAndBody(node)}`);
    return name;
  }

  function parametersAndBody(node: FunctionDeclaration): string {
    const outer = temps;
    temps = [];
    const parameters = node.parameters.map((each) =>
      each.type === "Identifier" ? localOf.get(each)!.js : "...$rest",
    );
    const inner = block(node.body);
    const declared = temps.length === 0 ? "" : `let ${temps.join(", ")};\n`;
    temps = outer;
    return `(${parameters.join(", ")}) {\n${declared}${inner}\n}`;
  }

  function block(statements: readonly Statement[]): string {
    return statements.map(statement).join("\n");
  }

  /**
   * Returns the declaration of a local. If shared functions use the local, it is declared next to
   * them.
   */
  function declaration(local: Local, value: string): string {
    const isOutside = local.isTop && sharedLocals.has(local);
    return isOutside ? `${local.js} = ${value};` : `let ${local.js} = ${value};`;
  }

  function statement(node: Statement): string {
    switch (node.type) {
      case "LocalStatement":
        return locally(node.variables, node.init);
      case "AssignmentStatement": {
        const [target, ...others] = node.variables;
        if (others.length === 0) return store(target!, one(node.init[0]!));
        const names = node.variables.map(() => `$${(unique += 1)}`);
        const isSame = node.variables.length === node.init.length;
        const held = isSame
          ? `const ${names.map((name, index) => `${name} = ${one(node.init[index]!)}`).join(", ")};`
          : `const [${names.join(", ")}] = ${array(node.init)};`;
        const stores = node.variables.map((each, index) => store(each, names[index]!));
        return `{ ${held} ${stores.join(" ")} }`;
      }
      case "CallStatement":
        return `${call(node.expression)};`;
      case "FunctionDeclaration": {
        if (node.identifier === null) throw new Error("a function statement needs a name");
        if (!node.isLocal) return store(node.identifier, functionText(node));
        const local = localOf.get(node.identifier as Identifier)!;
        const isFixed = functionOf(local) !== undefined;
        if (!isFixed) return declaration(local, functionText(node));
        if (!functions.get(node)!.canBeShared)
          return `const ${local.js} = function ${parametersAndBody(node)};`;
        nameOf.set(node, local.js);
        shared.push(`function ${local.js}${parametersAndBody(node)}`);
        return "";
      }
      case "IfStatement":
        return node.clauses
          .map((clause, index) => {
            if (clause.type === "ElseClause") return `else {\n${block(clause.body)}\n}`;
            const word = index === 0 ? "if" : "else if";
            return `${word} (${test(clause.condition)}) {\n${block(clause.body)}\n}`;
          })
          .join(" ");
      case "WhileStatement":
        return `while (${test(node.condition)}) {\n${block(node.body)}\n}`;
      case "RepeatStatement":
        return `for (;;) {\n${block(node.body)}\nif (${test(node.condition)}) break;\n}`;
      case "DoStatement":
        return `{\n${block(node.body)}\n}`;
      case "BreakStatement":
        return "break;";
      case "ReturnStatement": {
        const [only, ...others] = node.arguments;
        if (only === undefined) return "return;";
        return others.length === 0
          ? `return ${many(only)};`
          : `return [${values(node.arguments)}];`;
      }
      case "ForNumericStatement": {
        const local = localOf.get(node.variable)!;
        const end = `$${(unique += 1)}`;
        const step = node.step === null ? "1" : one(node.step);
        const isUp = node.step === null || /^\d/.test(step);
        if (!isUp && !/^\(-\d/.test(step))
          throw new Error("the step of a loop must be a number literal");
        const counter = local.isChanged ? `$${(unique += 1)}` : local.js;
        const own = local.isChanged ? `let ${local.js} = ${counter};\n` : "";
        const head = `let ${counter} = ${number(node.start)}, ${end} = ${number(node.end)}`;
        const test = `${counter} ${isUp ? "<=" : ">="} ${end}`;
        return `for (${head}; ${test}; ${counter} += ${step}) {\n${own}${block(node.body)}\n}`;
      }
      case "ForGenericStatement":
        return forEach(node.variables, node.iterators, block(node.body));
      default:
        throw new Error(`cannot translate ${node.type}`);
    }
  }

  function forEach(
    variables: readonly Identifier[],
    iterators: readonly Expression[],
    inner: string,
  ) {
    const names = variables.map((each) => localOf.get(each)!);
    const [iterator] = iterators;
    const known =
      iterator?.type === "CallExpression" ? libraryOf(iterator.base, localOf) : undefined;
    if (iterator?.type === "CallExpression" && known === "ipairs") {
      const list = `$${(unique += 1)}`;
      const at = `$${(unique += 1)}`;
      const [index, item] = names;
      const value = item?.js ?? `$${(unique += 1)}`;
      const counted = index!.isUsed ? `let ${index!.js} = ${at};\n` : "";
      return (
        `for (let ${list} = ${one(iterator.arguments[0]!)}, ${at} = 1; ; ${at} += 1) {\n` +
        `let ${value} = $get(${list}, ${at});\nif (${value} === undefined) break;\n${counted}${inner}\n}`
      );
    }
    const each = `$${(unique += 1)}`;
    const taken = names.map(({ js }, index) => `${js} = ${each}[${index}]`).join(", ");
    const isPairs = iterator?.type === "CallExpression" && known === "pairs";
    const isMatches = iterator?.type === "CallExpression" && known === "string.gmatch";
    const source =
      isPairs || isMatches
        ? `$${isPairs ? "pairs" : "matches"}(${values(iterator.arguments)})`
        : `$iterate(${values(iterators)})`;
    return `for (const ${each} of ${source}) {\nlet ${taken};\n${inner}\n}`;
  }

  function locally(variables: readonly Identifier[], init: readonly Expression[]): string {
    const all = variables.map((each) => localOf.get(each)!);
    const lines: string[] = [];
    const last = init.at(-1);
    const isOpen =
      last !== undefined && variables.length > init.length && canBeMany(last) && !isOne(last);
    const closed = isOpen ? init.slice(0, -1) : init;
    for (const [index, local] of all.entries()) {
      const value = closed[index];
      if (isOpen && index >= closed.length) break;
      if (literalOf(local) !== undefined) continue;
      lines.push(declaration(local, value === undefined ? "undefined" : one(value)));
    }
    for (const value of init.slice(variables.length)) lines.push(`${one(value)};`);
    if (isOpen) {
      const many$ = `$${(unique += 1)}`;
      const rest = all.slice(closed.length);
      lines.push(`const ${many$} = ${openValues(last)};`);
      for (const [index, local] of rest.entries()) {
        if (local.isUsed || local.isChanged) lines.push(declaration(local, `${many$}[${index}]`));
      }
    }
    return lines.join("\n");
  }

  function openValues(node: Expression): string {
    if (node.type === "CallExpression" && libraryOf(node.base, localOf) === "struct.unpack") {
      const count = doublesIn(node.arguments[0]);
      if (count !== undefined && node.arguments.length === 2)
        return `$readDoubles(${count}, ${one(node.arguments[1]!)})`;
    }
    return `$list(${many(node)})`;
  }

  function store(target: Expression, value: string): string {
    if (target.type === "Identifier") return `${localOf.get(target)!.js} = ${value};`;
    if (target.type === "MemberExpression")
      return `${one(target.base)}.$${target.identifier.name} = ${value};`;
    if (target.type === "IndexExpression")
      return `$set(${one(target.base)}, ${one(target.index)}, ${value});`;
    throw new Error(`cannot assign to ${target.type}`);
  }

  /** The locals that shared functions use. */
  const sharedLocals = new Set<Local>();
  for (const made of functions.values()) {
    for (const local of made.uses) {
      const isFunction = functionOf(local)?.canBeShared === true;
      if (local.isTop && literalOf(local) === undefined && !isFunction) sharedLocals.add(local);
    }
  }
  const main = block(chunk.body);
  const fields = [...new Set(fieldsOf(chunk))].sort();
  const outside = ["KEYS", "ARGV", "$c", ...[...sharedLocals].map(({ js }) => js)];
  const declared = temps.length === 0 ? "" : `let ${temps.join(", ")};\n`;
  // The commands hold the whole state of a store, which must not outlive the run.
  const body = `${shared.join("\n")}\nreturn function ($keys, $args, $commands) {\n${[
    "KEYS = $keys;\nARGV = $args;\n$c = $commands;\ntry {\n",
    declared,
    main,
    "\n} finally {\nKEYS = ARGV = $c = undefined;\n}",
  ].join("")}\n};`;
  const used = Object.keys(runtime).filter((name) => body.includes(`$${name}`));
  return (
    `function ($) {\nconst { ${used.map((name) => `${name}: $${name}`).join(", ")} } = $;\n` +
    `$.knowFields(${JSON.stringify(fields)});\nlet ${outside.join(", ")};\n${body}\n}`
  );
}
