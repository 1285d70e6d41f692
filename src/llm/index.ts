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

export { estimateTokens, type CountTokens } from "./estimate.ts";
