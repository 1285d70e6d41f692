/** Finds the prose in a file: a whole Markdown page, the titles of a test, or the comments and sentences of code. */
import { extname } from "node:path";
import luaparse from "luaparse";
import { parseSync, Visitor, type Comment, type Node } from "oxc-parser";

/** A piece of Markdown, and the line of the file on which it begins. */
export interface ProseText {
  readonly markdown: string;
  readonly line: number;
}

/** One comment, without the marks that begin and end it. */
interface RawComment {
  readonly value: string;
  readonly isBlock: boolean;
  readonly start: number;
}

/** The file extensions that `textsIn` can read. */
export const PROSE_EXTENSIONS: readonly string[] = [".md", ".ts", ".js", ".lua"];

export function textsIn(path: string, source: string): readonly ProseText[] {
  const extension = extname(path);
  if (extension === ".md") return [{ markdown: withoutFrontMatter(source), line: 1 }];
  const lineAt = lineFinder(source);
  if (IS_TEST.test(path)) {
    return titlesIn(path, source).map(({ value, start }) => {
      return { markdown: escaped(value), line: lineAt(start) };
    });
  }
  const { comments, strings } = extension === ".lua" ? luaTexts(source) : scriptTexts(path, source);
  return [
    ...blocksOf(comments, lineAt).flatMap(sections),
    ...strings
      .filter(({ value }) => IS_SENTENCE.test(value) && !IS_SQL.test(value))
      .map(({ value, start }) => ({ markdown: escaped(value), line: lineAt(start) })),
  ];
}

/** Of tests, only the titles are checked. */
const IS_TEST = /\.test\.ts$/;
const TITLED = /^(?:describe|it|test)\b/;
const PLACEHOLDER = /%[a-z#]|\$[\w.]+/gi;

function titlesIn(path: string, source: string): readonly FoundString[] {
  const titles: FoundString[] = [];
  new Visitor({
    CallExpression: ({ callee, arguments: [title] }) => {
      if (title === undefined || !TITLED.test(source.slice(callee.start, callee.end))) return;
      const value = literalText(title, new Set());
      if (value === undefined) return;
      titles.push({ value: value.replaceAll(PLACEHOLDER, CODE), start: title.start });
    },
  }).visit(parseSync(path, source).program);
  return titles;
}

/** Strings of fewer than four words are names, keys and codes. */
const IS_SENTENCE = /^[^{}\\]*?(?:[A-Za-z`'’,-]{2,} ){3}[A-Za-z`'’,-]{2,}/;

/** A statement of SQL. Its keywords are in upper case, which no sentence begins with. */
const IS_SQL = /^\s*(?:BEGIN|CREATE|DELETE|GRANT|INSERT|SELECT|UPDATE|WITH)\s/;

/** Text in the place of code, such as `${name}`: it counts as one word. */
const CODE = "`x`";

function scriptTexts(path: string, source: string): Found {
  const { program, comments } = parseSync(path, source);
  const strings: FoundString[] = [];
  const inside = new Set<number>();
  const add = (node: Node): void => {
    if (inside.has(node.start)) return;
    strings.push({ value: literalText(node, inside) ?? "", start: node.start });
  };
  new Visitor({
    BinaryExpression: (node) => {
      if (node.operator === "+" && literalText(node, new Set()) !== undefined) add(node);
    },
    Literal: add,
    TemplateLiteral: add,
    TSTemplateLiteralType: (node) => void inside.add(node.start),
  }).visit(program);
  return {
    comments: comments.map(({ type, value, start }: Comment) => {
      return { value, start, isBlock: type === "Block" };
    }),
    strings,
  };
}

/**
 * The text of a string, a template or a sum of them; undefined for anything else. Notes all literals that it has
 * read in `inside`, so that they are not reported twice.
 */
function literalText(node: Node, inside: Set<number>): string | undefined {
  inside.add(node.start);
  if (node.type === "Literal") return typeof node.value === "string" ? node.value : undefined;
  if (node.type === "TemplateLiteral") {
    return node.quasis.map(({ value }) => value.cooked ?? "").join(CODE);
  }
  if (node.type !== "BinaryExpression" || node.operator !== "+") return undefined;
  const parts = [node.left, node.right].map((side) => literalText(side, inside));
  if (parts.every((part) => part === undefined)) return undefined;
  return parts.map((part) => part ?? CODE).join("");
}

function luaTexts(source: string): Found {
  const strings: FoundString[] = [];
  const chunk = luaparse.parse(source, {
    luaVersion: "5.1",
    comments: true,
    ranges: true,
    onCreateNode: (node) => {
      const { type, raw, range } = node as unknown as LuaNode;
      if (type === "StringLiteral") strings.push({ value: raw.slice(1, -1), start: range[0] });
    },
  });
  const comments = (chunk.comments ?? []) as unknown as readonly LuaNode[];
  return {
    comments: comments.map(({ value, raw, range: [start] }) => {
      // The value of a long comment lacks its first line break.
      const isBlock = raw.startsWith("--[[");
      return { value: isBlock ? raw.slice(4, -2) : value, start, isBlock };
    }),
    strings,
  };
}

/** The types of luaparse lack the ranges. */
interface LuaNode {
  readonly type: string;
  readonly value: string;
  readonly raw: string;
  readonly range: readonly [number, number];
}

interface FoundString {
  readonly value: string;
  readonly start: number;
}

interface Found {
  readonly comments: readonly RawComment[];
  readonly strings: readonly FoundString[];
}

/** Joins line comments on lines that follow each other to one block. */
function blocksOf(
  comments: readonly RawComment[],
  lineAt: (offset: number) => number,
): readonly ProseText[] {
  const blocks: { markdown: string; line: number; isBlock: boolean }[] = [];
  for (const { value, isBlock, start } of comments) {
    if (IS_DIRECTIVE.test(value)) continue;
    const last = blocks.at(-1);
    const line = lineAt(start);
    if (!isBlock && last?.isBlock === false && last.line + lineCount(last.markdown) === line) {
      last.markdown += `\n${value.trim()}`;
      continue;
    }
    const lines = value.split("\n").map((each) => each.replace(/^\s*\*? ?/, ""));
    blocks.push({ markdown: lines.join("\n"), line, isBlock });
  }
  return blocks;
}

const IS_DIRECTIVE = /^\s*(?:@include|oxlint-|@ts-|v8 ignore|\/ <|@vite-ignore)/;

/** A tag such as `@throws`, or a heading of a Lua script's header, begins a paragraph of its own. */
const SECTION = /^(?:@\w+|\s*(?:KEYS|ARGV|Reply)\b|\s*\[\d+\.*\])/;

function sections({ markdown, line }: ProseText): readonly ProseText[] {
  const found: { lines: string[]; line: number }[] = [{ lines: [], line }];
  for (const [at, each] of markdown.split("\n").entries()) {
    if (SECTION.test(each)) found.push({ lines: [], line: line + at });
    found.at(-1)?.lines.push(each);
  }
  return found.map(({ lines, line: first }) => {
    const text = lines.join("\n").replaceAll(/\{@link ([^}|]*)[^}]*\}/g, "`$1`");
    return { markdown: text.replace(/^@\w+ ?/, ""), line: first };
  });
}

/** A string is no Markdown: only its quoted code is kept. */
function escaped(text: string): string {
  return text
    .trim()
    .replaceAll(/[*_<>#[\]|\\]/g, " ")
    .replaceAll(/ {2,}/g, " ");
}

function withoutFrontMatter(source: string): string {
  return source.replace(/^---\n[\s\S]*?\n---\n/, (front) => front.replaceAll(/[^\n]/g, ""));
}

function lineCount(text: string): number {
  return text.split("\n").length;
}

function lineFinder(source: string): (offset: number) => number {
  return (offset) => lineCount(source.slice(0, offset));
}
