import { createHash } from "node:crypto";
import { countTokens } from "gpt-tokenizer";
import { describe, expect, it } from "vitest";
import { estimateTokens } from "sluice/llm";
import { CORPUS } from "../../support/llm/corpus.ts";

const kinds = Object.entries(CORPUS);

const JAVA = `public OrderResponseDto createOrderForCustomer(CreateOrderRequestDto createOrderRequestDto) {
  var customerAccount = customerAccountRepository.findByCustomerIdAndIsActiveTrue(createOrderRequestDto.getCustomerId());
  return orderResponseMapper.toOrderResponseDto(orderRepository.saveAndFlush(customerAccount));
}
`;
const BYTES = createHash("shake256", { outputLength: 6_000 }).update("bytes").digest();

function errorOf(text: string): number {
  return Math.abs(estimateTokens(text) / countTokens(text) - 1);
}

describe("the first estimate of tokens, before anything is learned", () => {
  it("is off by less than 15 % on average over many kinds of text", () => {
    const mean = kinds.reduce((sum, [, text]) => sum + errorOf(text), 0) / kinds.length;

    expect(kinds.length).toBeGreaterThanOrEqual(12);
    expect(mean).toBeLessThan(0.15);
  });

  it.each(kinds)("is off by less than a quarter for %s", (_kind, text) => {
    expect(errorOf(text)).toBeLessThan(0.25);
  });

  it.each(kinds)(
    "is off by less than a third for %s inside of JSON and of quotes",
    (_kind, text) => {
      expect(errorOf(JSON.stringify({ role: "user", content: text }))).toBeLessThan(0.33);
    },
  );

  it.each<[string, string]>([
    ["a name in camel case", "getUserByIdAndOrganizationName ".repeat(60)],
    ["Java", JAVA.repeat(10)],
    [
      "names of Swift",
      "tableView(_:didSelectRowAtIndexPath:) UIApplicationLaunchOptionsKey\n".repeat(20),
    ],
  ])("does not mistake a long name for base64: %s", (_kind, text) => {
    expect(errorOf(text)).toBeLessThan(0.3);
  });

  it.each<[string, string]>([
    ["bytes", BYTES.toString("base64")],
    ["bytes in the alphabet of URLs", BYTES.toString("base64url")],
    ["a text", Buffer.from(JAVA.repeat(5)).toString("base64")],
    ["ids", Array.from(BYTES.toString("base64").match(/.{22}/g)!).join(" ")],
  ])("recognizes base64 of %s", (_what, text) => {
    expect(errorOf(text)).toBeLessThan(0.15);
  });

  it.each<[string, string, number]>([
    ["nothing", "", 0],
    ["a word", "lock", 1],
    ["a space", " ", 0],
    ["a thousand line breaks", "\n".repeat(1_000), 63],
  ])("is a whole number for %s", (_what, text, expected) => {
    expect(estimateTokens(text)).toBe(expected);
  });
});
