import luaparse, {
  type Chunk,
  type Expression,
  type FunctionDeclaration,
  type Identifier,
  type Statement,
  type TableConstructorExpression,
} from "luaparse";
import * as libraries from "./libraries.ts";
import * as runtime from "./runtime.ts";

import {
  canBeMany,
  countOfDoubles,
  doublesIn,
  libraryOf,
  LIBRARY,
  literalOf,
  resolve,
  type Call,
  type Local,
  type Resolved,
  type Type,
} from "./resolve.ts";

const OPERATORS: Readonly<Record<string, string>> = { "==": "===", "~=": "!==", "^": "**" };
const MATH: Readonly<Record<string, string>> = {
  floor: "Math.floor",
  ceil: "Math.ceil",
  max: "Math.max",
  min: "Math.min",
  abs: "Math.abs",
};
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

function emit(chunk: Chunk, { localOf, functions, functionOf, isOne }: Resolved): string {
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
        if (known?.startsWith("math.")) return mathName(known);
        if (known !== undefined && LIBRARY[known]) return libraryName(known);
        return `${one(node.base)}.$${node.identifier.name}`;
      }
      case "IndexExpression":
        if (node.index.type === "NumericLiteral" && isInput(node.base))
          return `${one(node.base)}.a[${node.index.value - 1}]`;
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
        const doubles = readDoubles(node);
        if (doubles !== undefined) return `${doubles}[0]`;
        const all = call(node as Call);
        return isOne(node) ? all : `$first(${all})`;
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

  /** True for `KEYS` and `ARGV`, which are plain lists. */
  function isInput(node: Expression): boolean {
    if (node.type !== "Identifier" || localOf.has(node)) return false;
    return node.name === "KEYS" || node.name === "ARGV";
  }

  function mathName(known: string): string {
    const name = MATH[known.slice("math.".length)];
    if (name === undefined) throw new Error(`the function ${known} is not supported`);
    return name;
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
    if (type === "boolean" || type === "table" || type === "function") {
      // JavaScript's operators are correct here: of these values, only false is falsy in JavaScript.
      return `(${one(left)} ${operator === "and" ? "&&" : "||"} ${one(right)})`;
    }
    const isPlain = left.type === "Identifier";
    const name = isPlain ? one(left) : temp();
    const value = isPlain ? name : `(${name} = ${one(left)})`;
    return operator === "and"
      ? `(${value} === undefined || ${name} === false ? ${name} : ${one(right)})`
      : `(${value} !== undefined && ${name} !== false ? ${name} : ${one(right)})`;
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
    if (known?.startsWith("math.")) return `${mathName(known)}(${values(given)})`;
    if (known === "redis.call") {
      const [command, ...operands] = given;
      // The script may come from any process of this machine, so no other text of it becomes code.
      if (command?.type === "StringLiteral" && /^[a-z]+$/i.test(command.value)) {
        return `$c.${command.value.toUpperCase()}(${values(operands)})`;
      }
    }
    if (known === "struct.pack" || known === "struct.unpack") {
      const [format, ...operands] = given;
      const count = doublesIn(format) ?? countOfDoubles(format, localOf);
      if (count !== undefined && known === "struct.pack") return `$packDoubles(${array(operands)})`;
      if (count !== undefined && operands.length === 1) {
        const text =
          typeof count === "number" ? String(count) : `${count.least} + ${number(count.more)}`;
        return `$unpackDoubles(${text}, ${one(operands[0]!)})`;
      }
    }
    if (node.base.type === "MemberExpression" && node.base.indexer === ":") {
      throw new Error(`the method call of ${node.base.identifier.name} is not supported`);
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
        // Lua evaluates all indexes before it assigns the first value.
        const places = node.variables.map((each, index) => {
          if (each.type !== "IndexExpression" || !mayChange(each.index, node.variables)) return "";
          const place = `$${(unique += 1)}`;
          stores[index] = `$set(${one(each.base)}, ${place}, ${names[index]});`;
          return `const ${place} = ${one(each.index)};`;
        });
        return `{ ${held} ${places.join("")} ${stores.join(" ")} }`;
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
        const isDown = /^\(-\d/.test(step);
        const counter = local.isChanged ? `$${(unique += 1)}` : local.js;
        const own = local.isChanged ? `let ${local.js} = ${counter};\n` : "";
        const head = `let ${counter} = ${number(node.start)}, ${end} = ${number(node.end)}`;
        const isInside = `${counter} ${isUp ? "<=" : ">="} ${end}`;
        // Only the value of a computed step shows in which direction the loop runs.
        const test =
          isUp || isDown ? isInside : `(${step} > 0 ? ${counter} <= ${end} : ${isInside})`;
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
    return readDoubles(node) ?? `$list(${many(node)})`;
  }

  /** Translates an unpacking of doubles whose values are read before the next one. */
  function readDoubles(node: Expression): string | undefined {
    if (node.type !== "CallExpression" || libraryOf(node.base, localOf) !== "struct.unpack")
      return undefined;
    const count = doublesIn(node.arguments[0]);
    if (count === undefined || node.arguments.length !== 2) return undefined;
    return `$readDoubles(${count}, ${one(node.arguments[1]!)})`;
  }

  /** True if an assignment to these targets may change the value of an expression. */
  function mayChange(node: Expression, targets: readonly Expression[]): boolean {
    if (node.type === "Identifier")
      return targets.some((each) => each.type === "Identifier" && each.name === node.name);
    if (node.type === "BinaryExpression")
      return mayChange(node.left, targets) || mayChange(node.right, targets);
    return !node.type.endsWith("Literal");
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
  const known = [...Object.keys(runtime), ...Object.keys(libraries)];
  const used = known.filter((name) => body.includes(`$${name}`));
  return (
    `function ($) {\nconst { ${used.map((name) => `${name}: $${name}`).join(", ")} } = $;\n` +
    `$.knowFields(${JSON.stringify(fields)});\nlet ${outside.join(", ")};\n${body}\n}`
  );
}
