// What the Vercel AI SDK makes of a server, as JSON on standard output: `node ai_sdk.mjs BASE_URL MODEL`.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, model] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "mtplx",
  baseURL,
  apiKey: "unused",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const question = "What is the capital of France?";
const settings = { model: provider(model), temperature: 0, maxOutputTokens: 60, maxRetries: 0 };
const city = z.enum(["Berlin", "Paris", "Rome"]);
const weather = tool({
  description: "Tell the weather in a city.",
  inputSchema: z.object({ city }),
  execute: async ({ city }) => `It is sunny in ${city}.`,
});

const whole = await generateText({ ...settings, prompt: question });

const stream = streamText({ ...settings, prompt: question });
const pieces = [];
for await (const piece of stream.textStream) pieces.push(piece);

const { object } = await generateObject({
  ...settings,
  prompt: question,
  schema: z.object({ city, isCertain: z.boolean() }),
});

const calling = {
  ...settings,
  prompt: "How is the weather in Paris?",
  tools: { weather },
  toolChoice: "required",
  stopWhen: stepCountIs(1),
};
const called = await generateText(calling);
const callingStream = streamText(calling);
await callingStream.consumeStream();

console.log(
  JSON.stringify({
    whole: whole.text,
    finishReason: whole.finishReason,
    usage: whole.usage,
    pieces,
    streamedUsage: await stream.usage,
    object,
    toolResults: called.toolResults.map((result) => result.output),
    streamedToolResults: (await callingStream.toolResults).map((result) => result.output),
  }),
);
