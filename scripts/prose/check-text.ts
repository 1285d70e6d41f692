/** The rules of prose: how long sentences and paragraphs are, which words they use, and how often they are passive. */
import { readFileSync } from "node:fs";
import type { Paragraph, PhrasingContent, TableCell, Heading } from "mdast";
import { toNlcst } from "mdast-util-to-nlcst";
import type { Root as Sentences, Sentence } from "nlcst";
import { toString } from "nlcst-to-string";
import { ParseEnglish } from "parse-english";
import remarkGfm from "remark-gfm";
import remarkParse from "remark-parse";
import retextPassive from "retext-passive";
import retextRepeatedWords from "retext-repeated-words";
import { unified } from "unified";
import { visit } from "unist-util-visit";
import { VFile } from "vfile";
import type { ProseText } from "./texts.ts";

export interface Finding {
  readonly line: number;
  readonly severity: "error" | "warning";
  readonly rule: string;
  readonly message: string;
}

/** The rules for one file. Word counts count inline code as one word. */
export interface ProseLimits {
  readonly sentenceError: number;
  readonly sentenceWarning: number;
  /** Checked in pages of the documentation only. */
  readonly paragraph?: number;
  /** The most characters in a cell of a table. */
  readonly cell?: number;
  /** The share of passive sentences above which a file gets a warning. */
  readonly passiveShare: number;
}

export const LIMITS: ProseLimits = { sentenceError: 40, sentenceWarning: 30, passiveShare: 0.3 };
export const PAGE_LIMITS: ProseLimits = { ...LIMITS, paragraph: 90 };
export const GUIDE_LIMITS: ProseLimits = { ...PAGE_LIMITS, cell: 200 };

/** With fewer sentences, a share says nothing. */
const LEAST_SENTENCES = 10;

export function checkTexts(
  texts: readonly ProseText[],
  limits: ProseLimits = LIMITS,
): readonly Finding[] {
  const findings: Finding[] = [];
  let sentences = 0;
  let passive = 0;
  for (const text of texts) {
    const file = new VFile(text.markdown);
    for (const { tree, node } of blocksOf(file)) {
      const checked = checkBlock(tree, { file, node, limits });
      sentences += checked.sentences;
      passive += checked.passive;
      findings.push(
        ...checked.findings.map((each) => ({ ...each, line: each.line + text.line - 1 })),
      );
    }
  }
  if (sentences >= LEAST_SENTENCES && passive / sentences > limits.passiveShare) {
    const share = `${Math.round((100 * passive) / sentences)} %`;
    findings.push({ line: 1, ...warning("passive", `${share} of the sentences are passive`) });
  }
  return findings.toSorted((a, b) => a.line - b.line);
}

type Block = Paragraph | Heading | TableCell;

/** Parses each paragraph, heading and cell by itself, since the parser of English skips tables. */
function blocksOf(file: VFile): readonly { readonly tree: Sentences; readonly node: Block }[] {
  const blocks: { tree: Sentences; node: Block }[] = [];
  visit(unified().use(remarkParse).use(remarkGfm).parse(file), (node) => {
    if (node.type !== "paragraph" && node.type !== "heading" && node.type !== "tableCell") return;
    const children = node.children as PhrasingContent[];
    if (children.length === 0) return;
    const paragraph: Paragraph = { type: "paragraph", children, position: node.position };
    const root = { type: "root" as const, children: [paragraph], position: node.position };
    blocks.push({ tree: toNlcst(root, file, ParseEnglish) as Sentences, node });
  });
  return blocks;
}

interface BlockToCheck {
  readonly file: VFile;
  readonly node: Block;
  readonly limits: ProseLimits;
}

function checkBlock(tree: Sentences, { file, node, limits }: BlockToCheck) {
  const findings: Finding[] = [];
  const line = node.position?.start.line ?? 1;
  let sentences = 0;
  let words = 0;
  visit(tree, "SentenceNode", (sentence: Sentence) => {
    const count = wordCount(sentence);
    sentences += 1;
    words += count;
    const at = sentence.position?.start.line ?? line;
    if (count > limits.sentenceError) {
      findings.push({
        line: at,
        ...error("sentence-length", `${count} words: split the sentence`),
      });
    } else if (count > limits.sentenceWarning) {
      findings.push({ line: at, ...warning("sentence-length", `${count} words`) });
    }
    for (const { phrase, instead } of bannedIn(sentence)) {
      findings.push({ line: at, ...error("banned-words", `"${phrase}": ${instead}`) });
    }
  });
  if (limits.paragraph !== undefined && words > limits.paragraph) {
    const message = `${words} words: split the paragraph, or make it a list or a table`;
    findings.push({ line, ...error("paragraph-length", message) });
  }
  const cell = node.type === "tableCell" ? lengthOf(node) : 0;
  if (limits.cell !== undefined && cell > limits.cell) {
    findings.push({ line, ...error("cell-length", `${cell} characters in a cell of a table`) });
  }
  for (const repeated of messagesOf(retextRepeatedWords, tree, file)) {
    findings.push({ line: repeated.line ?? line, ...error("repeated-words", repeated.reason) });
  }
  const passive = Math.min(sentences, messagesOf(retextPassive, tree, file).length);
  return { findings, sentences, passive };
}

function messagesOf(rule: typeof retextPassive, tree: Sentences, file: VFile) {
  const checked = new VFile(String(file));
  unified().use(rule).runSync(tree, checked);
  return checked.messages;
}

function wordCount(sentence: Sentence): number {
  let count = 0;
  visit(sentence, (node) => {
    if (node.type === "WordNode" || node.type === "SourceNode") count += 1;
  });
  return count;
}

function lengthOf({ position }: TableCell): number {
  const { start, end } = position ?? {};
  return (end?.offset ?? 0) - (start?.offset ?? 0);
}

interface BannedPhrase {
  readonly pattern: RegExp;
  /** What to write in its place. */
  readonly instead: string;
}

const BANNED = readBannedWords(readFileSync(new URL("banned-words.txt", import.meta.url), "utf8"));

/** Reads lines of the form `pattern = what to write`. The pattern matches whole words, in any case. */
function readBannedWords(text: string): readonly BannedPhrase[] {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return lines.map((line) => {
    const [pattern, instead] = line.split(" = ");
    if (instead === undefined) throw new Error(`banned-words.txt: no " = " in "${line}"`);
    return { pattern: new RegExp(String.raw`\b(?:${pattern})\b`, "gi"), instead };
  });
}

/** Code and quotations do not count, because they name text that others chose. */
function bannedIn(sentence: Sentence) {
  const text = sentence.children
    .map((node) => (node.type === "SourceNode" ? "`" : toString(node)))
    .join("")
    .replaceAll(/\s+/g, " ")
    .replaceAll(/"[^"]*"|“[^”]*”/g, '"');
  return BANNED.flatMap(({ pattern, instead }) =>
    [...text.matchAll(pattern)].map(([phrase]) => ({ phrase, instead })),
  );
}

function error(rule: string, message: string) {
  return { severity: "error" as const, rule, message };
}

function warning(rule: string, message: string) {
  return { severity: "warning" as const, rule, message };
}
