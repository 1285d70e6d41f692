export {
  anthropic,
  azure,
  bedrock,
  gemini,
  openai,
  type AnthropicOptions,
  type AzureOptions,
  type BedrockOptions,
  type GeminiOptions,
  type LlmBucket,
  type LlmOptions,
  type OpenAiOptions,
} from "./presets.ts";

export {
  priceOf,
  type ModelPrices,
  type PriceOptions,
  type PriceTable,
  type TokenPrices,
} from "./counting.ts";
export type { PricedCall, PriceOfCall, Usage } from "./usage.ts";
export { estimateTokens, type CountTokens } from "./estimate.ts";
