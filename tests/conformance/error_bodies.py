"""Error bodies of servers in the field, and what they mean: a table of facts, one wording a line.

Collected in November 2026. A source with a repository and a number was read there; the others are as the
vendor documents its errors, or as users report them. The figures are as reported; organisations and request
ids are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Meaning(StrEnum):
    """What a body means to a session."""

    TOO_LONG = "too long"
    PACE = "rate limit"
    QUOTA = "quota"
    BUSY = "overload"
    REFUSED = "refused"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Body:
    """One reported body.

    Attributes:
        status: of the reply; 200 is an error inside a reply or a stream.
        seconds: the wait that it names, where it names one.
    """

    vendor: str
    status: int
    body: Any
    meaning: Meaning
    source: str
    seconds: float | None = None


def _openai(
    message: str, kind: str | None = None, code: Any = None, param: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _anthropic(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _google(code: int, message: str, status: str, *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


_INVALID = "invalid_request_error"
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
_TPM = "on tokens per min (TPM): Limit 30000, Requested {}. The input or output tokens must be reduced."

# Vendor, status, body, source.
_TOO_LONG: list[tuple[str, int, Any, str]] = [
    ("OpenAI", 429, _openai(f"Request too large for gpt-4o {_TPM.format(61337)}", "tokens", "rate_limit_exceeded"),
     "continuedev/continue#10602"),
    ("OpenAI", 429, _openai(f"Request too large for gpt-4.1 (for limit gpt-4.1) {_TPM.format(37313)}", "tokens"),
     "continuedev/continue#11717"),
    ("OpenAI", 200, _openai(f"Request too large for gpt-5 {_TPM.format(40000)}", "tokens", "rate_limit_exceeded"),
     "Responses stream, openai/codex"),
    ("OpenAI", 400, _openai("Your input exceeds the context window of this model. Please adjust your input and try"
     " again.", _INVALID, "context_length_exceeded", "input"), "openai/codex#11071"),
    ("OpenAI", 400, _openai("This model's maximum context length is 128000 tokens. However, your messages resulted in"
     " 204308 tokens. Please reduce the length of the messages.", _INVALID), "webtimemachine/wtm2#579"),
    ("OpenAI", 400, _openai("Invalid 'input': string too long. Expected a string with maximum length 10485760, but got"
     " a string with length 11000000 instead.", _INVALID, "string_above_max_length", "input"), "openai docs"),
    ("OpenAI", 400, _openai("Invalid 'messages[3].content': string too long. Expected a string with maximum length"
     " 1048576, but got a string with length 1220000 instead.", _INVALID, "string_above_max_length",
     "messages[3].content"), "BerriAI/litellm exception mapping"),
    ("OpenAI", 400, _openai("Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an"
     " array with length 2062 instead.", _INVALID, "array_above_max_length", "messages"), "openai community"),
    ("OpenAI", 400, _openai("This model's maximum context length is 4097 tokens. However, you requested 4972 tokens (3222"
     " in the messages, 1750 in the completion). Please reduce the length of the messages or completion.", _INVALID),
     "emmethalm/infiniteGPT#6"),
    ("Azure", 400, _openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178"
     " tokens. Please reduce the length of the messages.", _INVALID), "BerriAI/litellm#15968"),
    ("Anthropic", 400, _anthropic("prompt is too long: 213462 tokens > 200000 maximum"), "earendil-works/pi overflow.ts"),
    ("Anthropic", 413, _anthropic("Request exceeds the maximum size", "request_too_large"), "anthropic docs, errors"),
    ("Anthropic", 400, _anthropic("input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000, decrease"
     " input length or `max_tokens` and try again"), "BrokkAi/brokk-app#540"),
    ("Anthropic", 200, _anthropic("prompt is too long: 209303 tokens > 200000 maximum"), "OpenHands/OpenHands#5350"),
    ("Anthropic", 429, _anthropic("Extra usage is required for long context requests.", "rate_limit_error"),
     "anthropics/claude-code"),
    ("Gemini", 400, _google(400, "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
     "INVALID_ARGUMENT"), "google-gemini/gemini-cli#6678"),
    ("Gemini", 400, _google(400, "The input token count exceeds the maximum number of tokens allowed (1048576).",
     "INVALID_ARGUMENT"), "arkavo-org/arkavo-edge#371"),
    ("Gemini", 400, _google(400, "Unable to submit request because the input token count is 40000 but model only supports"
     " up to 32768. Reduce the input token count and try again.", "INVALID_ARGUMENT"), "Vertex AI"),
    ("Gemini", 400, _google(400, "Request payload size exceeds the limit: 20971520 bytes.", "INVALID_ARGUMENT"),
     "google-gemini/gemini-cli"),
    ("Groq", 413, _openai("Request too large for model `llama3-70b-8192` on tokens per minute (TPM): Limit 6000, Requested"
     " 6324, please reduce your message size and try again.", "tokens", "rate_limit_exceeded"), "groq community"),
    ("Groq", 429, _openai("Request too large for model `qwen3-32b` on tokens per minute (TPM): Limit 6,000, Requested"
     " 16,324", "tokens", "rate_limit_exceeded"), "groq community"),
    ("Groq", 400, _openai("Please reduce the length of the messages or completion.", _INVALID, "context_length_exceeded"),
     "earendil-works/pi overflow.ts"),
    ("xAI", 400, _openai("This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
     "earendil-works/pi overflow.ts"),
    ("xAI", 400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 256000"
     " but the request contains 258811 tokens."}, "earendil-works/pi overflow.ts"),
    ("Mistral", 400, {"object": "error", "message": "Prompt contains 140000 tokens and 0 draft tokens, too large for model"
     " with 131072 maximum context length", "type": "invalid_request_prompt", "code": "3051"}, "BerriAI/litellm#21558"),
    ("DeepSeek", 400, _openai("This model's maximum context length is 131072 tokens. However, you requested 131134 tokens"
     " (122942 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
     _INVALID, _INVALID), "evalstate/fast-agent#621"),
    ("z.ai", 400, _openai("Prompt exceeds max length", code="1261"), "z.ai error codes"),
    ("z.ai", 400, _openai("Prompt 超长", code="1261"), "open.bigmodel.cn error codes"),
    ("z.ai", 200, _openai("Prompt exceeds max length", code="1261"), "z.ai error codes"),
    ("DashScope", 400, _openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
     _INVALID, "invalid_parameter_error"), "QwenLM/qwen-code#98"),
    ("DashScope", 400, {"code": "InvalidParameter", "message": "Range of input length should be [1, 6000]"},
     "LLM-Red-Team/qwen-free-api#23"),
    ("DashScope", 500, _openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]"),
     "QwenLM/qwen-code#2068"),
    ("Volcano", 400, _openai("Input length 140288 exceeds the maximum length 131072", "BadRequest", "InvalidParameter"),
     "Volcano Ark error codes"),
    ("Volcano", 400, _openai("The request failed because the input (140288 tokens) exceeds the maximum length.",
     "BadRequest", "InvalidParameter"), "Volcano Ark error codes"),
    ("Volcano", 400, _openai("Total tokens of image and text exceed max message tokens.", "BadRequest",
     "InvalidParameter.OversizeText"), "Volcano Ark error codes"),
    ("Moonshot", 400, _openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
     "invalid_request_error"), "earendil-works/pi overflow.ts"),
    ("MiniMax", 400, _openai("invalid params, context window exceeds limit (2013)", "bad_request_error"),
     "earendil-works/pi overflow.ts"),
    ("MiniMax", 200, {"base_resp": {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}},
     "MiniMax error codes"),
    ("SiliconFlow", 400, {"code": 20015, "message": "length of prompt_tokens (68957) must be less than max_seq_len (65536).",
     "data": None}, "chatboxai/chatbox#2060"),
    ("Cerebras", 400, {"message": "Please reduce the length of the messages or completion. Current length is 10000 while"
     " limit is 8192", "type": _INVALID, "param": "messages", "code": "context_length_exceeded"}, "BerriAI/litellm"),
    ("Cohere", 400, {"message": "too many tokens: total number of tokens in this request exceeds the maximum allowed (4081)"
     " for this model"}, "Cohere docs"),
    ("Together", 422, _openai("The input (140000 tokens) is longer than the model's context length (131072 tokens).",
     _INVALID), "earendil-works/pi overflow.ts"),
    ("Fireworks", 400, _openai("The prompt is too long: 133139, model maximum context length: 131071", _INVALID),
     "fireworks community"),
    ("Perplexity", 400, _openai("The total length of all messages is too long.", "bad_request"), "BerriAI/litellm#21558"),
    ("OpenRouter", 400, _openai("This endpoint's maximum context length is 32768 tokens. However, you requested about 42832"
     " tokens (42832 of text input). Please reduce the length of either one.", code=400), "refly-ai/refly#1177"),
    ("OpenRouter", 200, _openai("This endpoint's maximum context length is 163840 tokens. However, you requested about"
     " 170000 tokens (165000 of text input, 5000 in the output).", code=502), "OpenRouterTeam, provider errors"),
    ("OpenRouter", 400, _openai("Input length 140000 exceeds the maximum allowed input length of 131040 tokens.", code=400),
     "earendil-works/pi overflow.ts"),
    ("OpenRouter", 502, {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": '{"error":'
     "{\"message\":\"This model's maximum context length is 8192 tokens. However, your prompt has 9000 tokens.\"}}"}}},
     "truefoundry/models#873"),
    ("Copilot", 400, _openai("prompt token count of 130000 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded"),
     "earendil-works/pi overflow.ts"),
    ("GitHub Models", 413, {"error": {"code": "tokens_limit_reached", "message": "Request body too large for gpt-4o model."
     " Max size: 8000 tokens.", "details": "Request body too large for gpt-4o model. Max size: 8000 tokens."}},
     "eslint/tsc-meetings#593"),
    ("Bedrock", 400, {"message": "Input is too long for requested model."}, "aws-samples/bedrock-chat#95"),
    ("Bedrock", 400, {"message": "Too many input tokens. Max input tokens: 8192, request input token count: 9041 "},
     "Bedrock ValidationException"),
    ("Bedrock", 400, {"message": "Malformed input request: expected maxLength: 42000, actual: 46735, please reformat your"
     " input and try again."}, "ryanadoty/Amazon-Bedrock-Amazon-RDS-POC#9"),
    ("Bedrock", 400, {"message": "Input Tokens Exceeded: Number of input tokens exceeds maximum length."}, "Bedrock Nova"),
    ("LiteLLM", 400, _openai("litellm.ContextWindowExceededError: litellm.BadRequestError: Context Window exceeded for given"
     " call. No models have context window large enough for this call.", code="400"), "anomalyco/opencode#44889"),
    ("LiteLLM", 500, _openai("litellm.APIError: Requested token count exceeds the model's maximum context length of 131072"
     " tokens.", code="500"), "earendil-works/pi overflow.ts"),
    ("vLLM", 400, {"object": "error", "message": "This model's maximum context length is 16384 tokens. However, you requested"
     " 122946 tokens (112946 in the messages, 10000 in the completion).", "type": "BadRequestError", "code": 400},
     "vllm-project/vllm#20409"),
    ("vLLM", 400, {"object": "error", "message": "This model's maximum context length is 32768 tokens. However, you requested"
     " 1024 output tokens and your prompt contains at least 31745 input tokens, for a total of at least 32769 tokens.",
     "type": "BadRequestError", "code": 400}, "earendil-works/pi overflow.ts"),
    ("vLLM", 500, {"detail": "[address=0.0.0.0:43769, pid=1065] The decoder prompt (length 66501) is longer than the maximum"
     " model length of 65536. Make sure that `max_model_len` is no smaller than the number of text tokens."},
     "langchain-ai/deepagents#468"),
    ("vLLM", 400, {"object": "error", "message": "Prompt length of 5016 is longer than the maximum model length of 4096.",
     "type": "BadRequestError", "code": 400}, "hiyouga/LlamaFactory#7723"),
    ("Xinference", 500, {"detail": "[address=0.0.0.0:37591, pid=324770] The decoder prompt (length 17772) is longer than the"
     " maximum model length of 16384."}, "xorbitsai/inference#3785"),
    ("Xinference", 500, {"detail": "[address=0.0.0.0:38001, pid=8] Requested tokens (2285) exceed context window of 2048"},
     "fedora-copr/logdetective#100"),
    ("llama-cpp-python", 500, _openai("Requested tokens (817) exceed context window of 512", "internal_server_error"),
     "OpenCSGs/llm-inference#99"),
    ("llama.cpp", 500, {"error": {"code": 500, "message": "the request exceeds the available context size. try increasing the"
     " context size or enable context shift", "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}},
     "ggml-org/llama.cpp#15780"),
    ("llama.cpp", 400, {"error": {"code": 400, "message": "request (9030 tokens) exceeds the available context size (8192"
     " tokens), try increasing it", "type": "exceed_context_size_error"}}, "oobabooga/textgen#7257"),
    ("llama.cpp", 500, {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
     "ggml-org/llama.cpp server"),
    ("llama.cpp", 500, {"error": {"code": 500, "message": "input (2061 tokens) is too large to process. increase the physical"
     " batch size", "type": "server_error"}}, "ggml-org/llama.cpp server"),
    ("Ollama", 400, _openai("prompt too long; exceeded max context length by 5 tokens", "api_error"),
     "earendil-works/pi overflow.ts"),
    ("LM Studio", 400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length."},
     "earendil-works/pi overflow.ts"),
    ("LM Studio", 400, {"error": "Trying to keep the first 13000 tokens when context the overflows. However, the model is loaded"
     " with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or"
     " provide a shorter input"}, "lmstudio-ai/lmstudio-bug-tracker"),
    ("SGLang", 400, {"object": "error", "message": "The input (40000 tokens) is longer than the model's context length (32768"
     " tokens).", "type": "BadRequestError", "code": 400}, "BerriAI/litellm#10793"),
    ("TGI", 422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3900 `inputs`"
     " tokens and 500 `max_new_tokens`", "error_type": "validation"}, "BerriAI/litellm exception mapping"),
    ("TGI", 422, {"error": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
     "error_type": "validation"}, "huggingface/text-generation-inference"),
    ("TensorRT-LLM", 400, {"object": "error", "message": "The sum of prompt length (5000.0), query length (0) and max_new_tokens"
     " should not exceed max_num_tokens (4096)", "code": 400}, "NVIDIA/TensorRT-LLM"),
    ("RKLLM", 400, {"error": "Prompt is 11543 tokens but the model context window is 4096 tokens."}, "jaylfc/taOS#1738"),
    ("Replicate", 422, {"detail": "Your input is too long. Max input length is 4096 tokens, but you supplied 5441 tokens."},
     "run-llama/llama_index#7974"),
    ("Groq", 429, _openai("Rate limit reached for model `llama3-70b-8192` on tokens per minute (TPM): Limit 7000, Used 0, Requested"
     " ~12903. Please try again in 50.597142857s.", "tokens", "rate_limit_exceeded"), "firecrawl/firecrawl#81"),
    ("Bedrock", 400, {"message": "ValidationException: Input exceeds the max input token limit"}, "openclaw/openclaw#58839"),
    ("Cohere", 400, {"message": "total tokens exceeds the model's max of 4096"}, "openclaw/openclaw#58839"),
    ("Ollama", 400, _openai("ollama: context length exceeded for llama3"), "openclaw/openclaw#58839"),
    ("a gateway", 400, _openai("context_overflow"), "openclaw/openclaw#3188"),
    ("a gateway", 400, _openai("request (53192 tokens) exceeds context size (50176 tokens)"), "llmmllab/llmmllab-api#56"),
    ("vLLM", 400, {"object": "error", "message": "The decoder prompt (length 163270) is longer than the maximum model length of"
     " 128000. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens. For image inputs,"
     " the number of image tokens depends on the number of images, and possibly their aspect ratios as well.", "code": 400},
     "EvolvingLMMs-Lab/lmms-eval#988"),
    ("nginx", 413, b"<html><head><title>413 Request Entity Too Large</title></head></html>", "nginx"),
    ("a gateway", 413, b"", "Cerebras and Mistral without a body: earendil-works/pi overflow.ts"),
]  # fmt: skip

_PACE: list[tuple[str, int, Any, str, float | None]] = [
    ("OpenAI", 429, _openai("Rate limit reached for gpt-4.1 on tokens per min (TPM): Limit 30000, Used 18928, Requested 11159."
     " Please try again in 174ms.", "tokens", "rate_limit_exceeded"), "continuedev/continue#11472", 0.174),
    ("OpenAI", 429, _openai("Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29937, Requested 385."
     " Please try again in 644ms.", "tokens"), "BuilderIO/micro-agent#86", 0.644),
    ("OpenAI", 200, _openai("Rate limit reached for gpt-5 on tokens per min (TPM): Limit 500000, Used 500000, Requested 92134."
     " Please try again in 11.054s.", code="rate_limit_exceeded"), "openai/codex, response.failed", 11.054),
    ("OpenAI", 200, _openai("Rate limit reached. Please try again in 1m2.5s.", code="rate_limit_exceeded"),
     "openai/codex", 62.5),
    ("OpenAI", 200, _openai("Rate limit reached for gpt-5 on requests per day (RPD): Limit 200, Used 200, Requested 1. Please"
     " try again in 7m12s.", "requests", "rate_limit_exceeded"), "openai community", 432),
    ("Azure", 429, _openai("Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded token rate limit"
     " of your current OpenAI S0 pricing tier. Please retry after 26 seconds.", code="429"), "Azure OpenAI", 26),
    ("Anthropic", 429, _anthropic("This request would exceed your organization's rate limit of 30,000 input tokens per minute."
     " Please reduce the prompt length or the maximum tokens requested, or try again later.", "rate_limit_error"),
     "OpenHands/OpenHands#9259", None),
    ("Anthropic", 200, _anthropic("This request would exceed the rate limit for your organization of 20,000 input tokens per"
     " minute. Please reduce the prompt length or the maximum tokens requested, or try again later.", "rate_limit_error"),
     "FoundationAgents/OpenManus#746", None),
    ("Anthropic", 429, _anthropic("Number of request tokens has exceeded your per-minute rate limit", "rate_limit_error"),
     "anthropic docs", None),
    ("Gemini", 429, _google(429, "You exceeded your current quota. Please retry in 34.074824224s.", "RESOURCE_EXHAUSTED",
     {"@type": _RETRY_INFO, "retryDelay": "34s"}), "google-gemini/gemini-cli", 34),
    ("Gemini", 200, _google(429, "Resource has been exhausted (e.g. check quota).", "RESOURCE_EXHAUSTED",
     {"@type": _RETRY_INFO, "retryDelay": "41.5s"}), "google.rpc.RetryInfo", 41.5),
    ("Gemini", 200, _google(429, "Quota exceeded for metric: input_token_count per minute, limit: 250000. Please retry in 12s.",
     "RESOURCE_EXHAUSTED"), "google-gemini/gemini-cli", 12),
    ("Gemini compatible", 200, [_google(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED",
     {"@type": _RETRY_INFO, "retryDelay": "7s"})], "Gemini's OpenAI-compatible address", 7),
    ("Groq", 429, _openai("Rate limit reached for model `llama-3.3-70b` on tokens per minute (TPM): Limit 6000, Used 5900, Requested"
     " 800. Please try again in 7.2s.", "tokens", "rate_limit_exceeded"), "groq docs", 7.2),
    ("Moonshot", 429, _openai("request reached organization TPD rate limit, current: 1506556, limit: 1500000",
     "rate_limit_reached_error"), "openclaw tests", None),
    ("Mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this model.", "type":
     "service_tier_capacity_exceeded", "code": "3505"}, "BerriAI/litellm", None),
    ("Bedrock", 429, {"message": "Too many tokens, please wait before trying again."}, "earendil-works/pi overflow.ts", None),
    ("OpenRouter", 429, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw":
     "google/gemini-2.0-flash-exp:free is temporarily rate-limited upstream. Please retry shortly."}}}, "pydantic-ai", None),
    ("OpenRouter", 200, {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": '{"error":{"code":429,'
     '"details":[{"retryDelay":"19s"}]}}'}}}, "OpenRouter with Gemini upstream", 19),
    ("OpenRouter", 200, {"error": {"message": "Rate limit exceeded", "code": 429, "metadata": {"headers": {"Retry-After": "33"}}}},
     "OpenRouter docs, errors", 33),
    ("Copilot", 429, _openai("Sorry, you have been rate-limited. Please wait 47 seconds before trying again.", code="rate_limited"),
     "microsoft/vscode-copilot-release", 47),
    ("Copilot", 429, b"Sorry, you have exceeded your rate limit. Please wait 2 minutes and try again.",
     "microsoft/vscode-copilot-release", 120),
    ("Cerebras", 429, {"message": "Tokens per minute limit exceeded - too many tokens processed.", "type":
     "too_many_tokens_error", "param": "quota", "code": "token_quota_exceeded"}, "Cerebras", None),
    ("SambaNova", 429, {"error": {"message": "Rate limit exceeded", "retry_after": 15}}, "a field of the body", 15),
    ("a gateway", 200, {"error": {"message": "slow down", "code": "429", "retry_after_ms": 350}}, "a field of the body", 0.35),
    ("a gateway", 200, {"error": {"message": "Too many requests, retry in 20 seconds", "code": 429}}, "words", 20),
    ("a gateway", 429, {"error": {"message": "Try again in about 6 minutes and 11 seconds."}}, "words", 371),
    ("Mistral", 200, {"object": "error", "message": "Slow down, please", "type": "x", "code": "1300", "raw_status_code": 429},
     "earendil-works/pi#9815", None),
    ("z.ai", 429, _openai("Rate limit reached for requests", code="1302"), "z.ai error codes", None),
]  # fmt: skip

_REFUSED: list[tuple[str, int, Any, str]] = [
    ("Groq", 400, _openai("`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is less than the"
     " `context_window` for this model", _INVALID, param="max_tokens"), "anomalyco/opencode#1000"),
    ("Groq", 400, _openai("max_completion_tokens must be less than or equal to 40960, the maximum value for max_completion_tokens"
     " is less than the context_window for this model", _INVALID, param="max_completion_tokens"),
     "Alishahryar1/free-claude-code#955"),
    ("Groq", 400, _openai("max_tokens for `llama-3.1-8b-instant` must be less than or equal to 8000", _INVALID),
     "skapadia3214/groq-moa#8"),
    ("OpenAI", 400, _openai("max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you"
     " provided 100000.", _INVALID, "invalid_value", "max_tokens"), "openai community"),
    ("Anthropic", 400, _anthropic("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for"
     " claude-sonnet-4-5"), "anthropic docs"),
    ("Gemini", 400, _google(400, "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range"
     " is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.", "INVALID_ARGUMENT"), "Vertex AI"),
    ("DeepSeek", 400, _openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", _INVALID), "deepseek"),
    ("DashScope", 400, _openai("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", _INVALID),
     "DashScope error codes"),
    ("Volcano", 400, _openai("The parameter `max_tokens` specified in the request is not valid: integer above maximum value,"
     " expected a value <= 131072, but got 512000 instead.", "BadRequest", "InvalidParameter", "max_tokens"),
     "proma-ai/Proma#1453"),
    ("Bedrock", 400, {"message": "The maximum tokens you requested exceeds the model limit of 32768"},
     "charmbracelet/crush#946"),
    ("vLLM", 400, {"object": "error", "message": "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum"
     " context length is 32768 tokens and your request has 1150 input tokens (32000 > 32768 - 1150).", "type": "BadRequestError",
     "code": 400}, "stepfun-ai/Step-Audio-R1#3"),
    ("OpenRouter", 400, _openai("This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens"
     " (7884 of text input, 131072 in the output).", code=400), "OpenHands/OpenHands#9937"),
    ("OpenRouter", 400, _openai("This endpoint's maximum context length is 262144 tokens. However, you requested about 264433 tokens"
     " (188 of text input, 2101 of tool input, 262144 in the output).", code=400), "continuedev/continue#12733"),
    ("OpenAI", 400, _openai("Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length"
     " 80 instead.", _INVALID, "string_above_max_length", "user"), "BerriAI/litellm exception mapping"),
    ("OpenAI", 400, _openai("Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but"
     " got a string with length 64 instead.", _INVALID, "string_above_max_length", "messages[2].tool_calls[0].id"), "openai"),
    ("OpenAI", 400, _openai("Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length"
     " 160 instead.", _INVALID, "array_above_max_length", "tools"), "openai community"),
    ("OpenAI", 400, _openai("Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
     _INVALID, "string_above_max_length", "tools[0].function.description"), "openai community"),
    ("OpenAI", 400, _openai("You uploaded an unsupported image. Please make sure your image is below 20 MB in size.", _INVALID,
     "image_too_large"), "openai docs"),
    ("Anthropic", 400, _anthropic("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6803768 bytes > 5242880"
     " bytes"), "anthropics/claude-code"),
    ("Anthropic", 400, _anthropic("messages.4.content.0.image.source.base64.data: At least one of the image dimensions exceed max"
     " allowed size: 8000 pixels"), "anthropics/claude-code"),
    ("Anthropic", 400, _anthropic("A maximum of 100 PDF pages may be provided."), "anthropics/claude-code"),
    ("Anthropic", 413, _anthropic("image is too large: 40 megapixels"), "made from the above"),
    ("vLLM", 400, {"object": "error", "message": "At most 1 image(s) may be provided in one request.", "code": 400}, "vllm"),
    ("a gateway", 400, _openai("Invalid number of tools: limit 128, requested 160"), "made from the above"),
    ("OpenAI", 400, _openai("Unsupported parameter: 'temperature' is not supported with this model.", _INVALID, None,
     "temperature"), "vercel/ai"),
    ("Groq", 400, _openai("Tool choice is required, but model did not call a tool", _INVALID, "tool_use_failed"), "pydantic-ai"),
]  # fmt: skip

_REST: list[tuple[str, int, Any, Meaning, str]] = [
    ("OpenAI", 429, _openai("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota",
     "insufficient_quota"), Meaning.QUOTA, "vercel/ai"),
    ("OpenRouter", 402, _openai("This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can"
     " only afford 1234.", code=402), Meaning.QUOTA, "OpenRouter"),
    ("OpenRouter", 402, _openai("Prompt tokens limit exceeded: 15000 > 10025. To increase, visit the settings and upgrade to a paid"
     " account", code=402), Meaning.QUOTA, "OpenRouter"),
    ("DeepSeek", 402, _openai("Insufficient Balance", "unknown_error", _INVALID), Meaning.QUOTA, "deepseek docs"),
    ("OpenAI", 500, _openai("The server had an error while processing your request.", "server_error"), Meaning.BUSY, "openai"),
    ("llama.cpp", 503, _openai("Loading model", "unavailable_error", 503), Meaning.BUSY, "ggml-org/llama.cpp server"),
    ("llama.cpp", 500, _openai("failed to create the context window of the model", "server_error", 500), Meaning.BUSY,
     "a server that does not start"),
    ("Anthropic", 529, _anthropic("Overloaded", "overloaded_error"), Meaning.BUSY, "anthropics/claude-code#35792"),
    ("a gateway", 425, b"Too Early", Meaning.BUSY, "RFC 8470"),
]  # fmt: skip

BODIES = [
    *(Body(vendor, status, body, Meaning.TOO_LONG, source) for vendor, status, body, source in _TOO_LONG),
    *(Body(vendor, status, body, Meaning.PACE, source, wait) for vendor, status, body, source, wait in _PACE),
    *(Body(vendor, status, body, Meaning.REFUSED, source) for vendor, status, body, source in _REFUSED),
    *(Body(vendor, status, body, meaning, source) for vendor, status, body, meaning, source in _REST),
]
