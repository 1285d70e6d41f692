import type { Expression, Node, ObjectLiteralExpression, SourceFile } from "ts-morph";

type Morph = typeof import("ts-morph");

const TODO = "// TODO(sluice):";

/** What a codemod did in one file. */
export interface FileReport {
  readonly file: string;
  rewritten: number;
  /** The number of places where a person has to decide. */
  left: number;
}

/** The changes of one file, as replacements of text, so that all other text stays as it is. */
export interface Edits {
  readonly report: FileReport;
  replace(start: number, end: number, text: string): void;
  /** Counts a place that was rewritten. */
  done(): void;
  /** Adds a comment above the statement of a node. */
  todo(node: Node, what: string): void;
  /** Moves comments above the statement of a node. */
  keepComments(node: Node, comments: readonly string[]): void;
  /** Adds lines after the imports. */
  addAfterImports(line: string): void;
  /** Names that the file imports from "sluice". */
  readonly imports: Set<string>;
  /** The text of the file after all changes. */
  result(): string;
}

export function createEdits(file: SourceFile, name: string, { SyntaxKind }: Morph): Edits {
  const replacements: { readonly start: number; readonly end: number; readonly text: string }[] =
    [];
  const report: FileReport = { file: name, rewritten: 0, left: 0 };
  const imports = new Set<string>();
  const lines: string[] = [];
  const comments = new Set<string>();
  const text = file.getFullText();
  const isCommonJs = file.getImportDeclarations().length === 0;

  function statementOf(node: Node): Node {
    let each = node;
    for (;;) {
      const parent = each.getParent();
      const isMember = each.getKind() === SyntaxKind.PropertyDeclaration;
      const holds =
        parent === undefined ||
        [SyntaxKind.SourceFile, SyntaxKind.Block, SyntaxKind.ModuleBlock].includes(
          parent.getKind(),
        );
      if (holds || isMember) return each;
      each = parent;
    }
  }

  /** Puts a comment above a statement, unless an earlier run did. Returns false if this run did. */
  function comment(node: Node, line: string): boolean {
    const start = statementOf(node).getStart();
    if (comments.has(`${start} ${line}`)) return false;
    comments.add(`${start} ${line}`);
    const above = /(?:\/\/[^\n]*\n\s*)*$/.exec(text.slice(0, start))![0];
    if (above.split("\n").some((each) => each.trim() === line)) return true;
    // Another run may have other reasons, such as a worker that has been rewritten since. The first ones stay.
    if (line.startsWith(TODO) && above.includes(TODO)) return true;
    const indent = /[^\n]*$/.exec(text.slice(0, start))![0].replaceAll(/\S.*/g, "");
    replacements.push({ start, end: start, text: `${line}\n${indent}` });
    return true;
  }

  function importLine(): string {
    const names = [...imports].sort().join(", ");
    if (names === "") return "";
    return isCommonJs
      ? `const { ${names.replaceAll("type ", "")} } = require("sluice");`
      : `import { ${names} } from "sluice";`;
  }

  function afterImports(): number {
    const last = isCommonJs
      ? file
          .getStatements()
          .findLast((each) => /^(?:const|let|var)\b[^;]*\brequire\(/.test(each.getText()))
      : file.getImportDeclarations().at(-1);
    return last?.getEnd() ?? 0;
  }

  return {
    report,
    imports,
    replace: (start, end, replacement) => {
      replacements.push({ start, end, text: replacement });
    },
    done: () => (report.rewritten += 1),
    todo(node, what) {
      if (comment(node, `${TODO} ${what}`)) report.left += 1;
    },
    keepComments: (node, kept) => kept.forEach((each) => comment(node, each)),
    addAfterImports: (line) => void lines.push(line),
    result() {
      const added = [importLine(), ...lines].filter((line) => line !== "");
      if (added.length > 0) {
        const at = afterImports();
        const block = added.join("\n");
        replacements.push({ start: at, end: at, text: at === 0 ? `${block}\n` : `\n${block}` });
      }
      return replacements
        .map((each, order) => ({ ...each, order }))
        .sort((a, b) => b.start - a.start || b.end - a.end || b.order - a.order)
        .reduce((all, each) => all.slice(0, each.start) + each.text + all.slice(each.end), text);
    },
  };
}

/** The properties of an object literal by name. Undefined if some are not written out. */
export function propertiesOf(
  literal: ObjectLiteralExpression,
  { Node: Nodes }: Morph,
): Map<string, Expression> | undefined {
  const properties = new Map<string, Expression>();
  for (const each of literal.getProperties()) {
    if (Nodes.isPropertyAssignment(each)) {
      const name = each.getNameNode().getText().replaceAll(/["']/g, "");
      properties.set(name, each.getInitializerOrThrow());
    } else if (Nodes.isShorthandPropertyAssignment(each)) {
      properties.set(each.getName(), each.getNameNode());
    } else {
      return undefined;
    }
  }
  return properties;
}

/** The value of numbers that are multiplied and divided in code, such as `60 * 1000`. */
export function numberOf(expression: Expression | undefined): number | undefined {
  const text = expression?.getText().replaceAll(/[_\s]/g, "") ?? "";
  if (!/^\d+(?:\.\d+)?(?:e\d+)?(?:[*/]\d+(?:\.\d+)?(?:e\d+)?)*$/.test(text)) return undefined;
  const [first, ...rest] = text.split(/(?=[*/])/);
  return rest.reduce((value, each) => {
    const operand = Number(each.slice(1));
    return each.startsWith("*") ? value * operand : value / operand;
  }, Number(first));
}

/** A time as text in code: `"1min"`, or a template around an expression. */
export function timeText(expression: Expression): string {
  const ms = numberOf(expression);
  if (ms === undefined) return `\`\${Math.ceil(${expression.getText()})}ms\``;
  return JSON.stringify(shortTime(ms));
}

/** A rate as text in code: `"10/s"`. */
export function rateText(calls: Expression | number, per: Expression): string {
  const count = typeof calls === "number" ? calls : numberOf(calls);
  const ms = numberOf(per);
  if (count === undefined || ms === undefined) {
    const text = typeof calls === "number" ? String(calls) : calls.getText();
    return `{ calls: ${text}, per: ${timeText(per)} }`;
  }
  const inSecond = Math.round((count * 1e12) / ms) / 1e9;
  if (Number.isInteger(inSecond)) return JSON.stringify(`${inSecond}/s`);
  return JSON.stringify(`${count}/${shortTime(ms).replace(/^1(?=[a-z])/, "")}`);
}

function shortTime(ms: number): string {
  const units = [
    [3_600_000, "h"],
    [60_000, "min"],
    [1_000, "s"],
  ] as const;
  const unit = units.find(([size]) => ms % size === 0);
  return unit === undefined ? `${Math.ceil(ms)}ms` : `${ms / unit[0]}${unit[1]}`;
}

/** True if code in other files uses what a name stands for. */
export function isUsedElsewhere(name: Node | undefined, { Node: Nodes }: Morph): boolean {
  if (name === undefined || !Nodes.isReferenceFindable(name)) return false;
  return name.findReferencesAsNodes().some((each) => each.getSourceFile() !== name.getSourceFile());
}

/** The comments inside an object literal. */
export function commentsIn(literal: ObjectLiteralExpression): string[] {
  const found = literal
    .getProperties()
    .flatMap((each) => [...each.getLeadingCommentRanges(), ...each.getTrailingCommentRanges()]);
  return [...new Set(found.map((each) => each.getText()))];
}

/** A name such as `"stripe-client"` for code such as `stripeClient`. */
export function kebab(name: string): string {
  return name
    .replaceAll(/[^A-Za-z0-9]+/g, "-")
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1-$2")
    .replaceAll(/^-|-$/g, "")
    .toLowerCase();
}
