"""Refusals as vendors document or report them: each has its class, and a model that is denied is looked up in the list."""

import json

import pytest

from turnwright_provider.domain.classify import classify, denies_model
from turnwright_provider.domain.failures import FailureClass as F

REFUSALS = [
    (
        404,
        {
            "error": {
                "message": "The model `gpt-9` does not exist or you do not have access to it.",
                "type": "invalid_request_error",
                "param": None,
                "code": "model_not_found",
            }
        },
        F.INVALID,
        True,
    ),
    (
        400,
        {
            "error": {
                "message": "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.",
                "type": "invalid_request_error",
                "param": "temperature",
                "code": "unsupported_value",
            }
        },
        F.INVALID,
        False,
    ),
    (
        403,
        {
            "error": {
                "message": "Project `proj_x` does not have access to model `gpt-5`",
                "type": "invalid_request_error",
                "param": None,
                "code": "model_not_found",
            }
        },
        F.INVALID,
        True,
    ),
    (
        429,
        {
            "error": {
                "message": "You exceeded your current quota, please check your plan and billing details.",
                "type": "insufficient_quota",
                "param": None,
                "code": "insufficient_quota",
            }
        },
        F.INVALID,
        False,
    ),
    (
        401,
        {
            "error": {
                "message": "You must be a member of an organization to use the API",
                "type": "invalid_request_error",
            }
        },
        F.AUTH,
        False,
    ),
    (
        400,
        {
            "error": {
                "message": "Your organization must be verified to stream this model. Please go to: https://platform.openai.com/settings/organization/general",
                "type": "invalid_request_error",
                "param": "stream",
                "code": "unsupported_value",
            }
        },
        F.INVALID,
        False,
    ),
    (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-9"}}, F.INVALID, True),
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
            },
        },
        F.INVALID,
        False,
    ),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, F.SERVER, False),
    (
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        F.CONTEXT_EXCEEDED,
        False,
    ),
    (
        403,
        {
            "type": "error",
            "error": {
                "type": "permission_error",
                "message": "Your API key does not have permission to use the specified resource.",
            },
        },
        F.AUTH,
        False,
    ),
    (
        404,
        {
            "error": {
                "code": 404,
                "message": "models/gemini-9 is not found for API version v1beta, or is not supported for generateContent. Call ListModels to see the list of available models and their supported methods.",
                "status": "NOT_FOUND",
            }
        },
        F.INVALID,
        True,
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "API key not valid. Please pass a valid API key.",
                "status": "INVALID_ARGUMENT",
            }
        },
        F.AUTH,
        False,
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "User location is not supported for the API use.",
                "status": "FAILED_PRECONDITION",
            }
        },
        F.INVALID,
        False,
    ),
    (
        503,
        {
            "error": {
                "code": 503,
                "message": "The model is overloaded. Please try again later.",
                "status": "UNAVAILABLE",
            }
        },
        F.SERVER,
        False,
    ),
    (
        429,
        {
            "error": {
                "code": 429,
                "message": "Resource has been exhausted (e.g. check quota).",
                "status": "RESOURCE_EXHAUSTED",
            }
        },
        F.RATE_LIMIT,
        False,
    ),
    (400, {"error": {"message": "foo/bar is not a valid model ID", "code": 400}}, F.INVALID, True),
    (404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}}, F.INVALID, False),
    (404, {"error": {"message": "No endpoints found for foo/bar.", "code": 404}}, F.INVALID, False),
    (
        402,
        {
            "error": {
                "message": "Insufficient credits. Add more using https://openrouter.ai/settings/credits",
                "code": 402,
            }
        },
        F.INVALID,
        False,
    ),
    (
        403,
        {"error": {"message": "Input was flagged", "code": 403, "metadata": {"reasons": ["violence"]}}},
        F.INVALID,
        False,
    ),
    (502, {"error": {"message": "Provider returned error", "code": 502}}, F.GATEWAY, False),
    (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai.",
        },
        F.AUTH,
        False,
    ),
    (
        404,
        {
            "code": "Some requested entity was not found",
            "error": "The model grok-9 does not exist or your team x does not have access to it.",
        },
        F.INVALID,
        True,
    ),
    (400, {"code": "Client specified an invalid argument", "error": "Model not found: grok-9"}, F.INVALID, True),
    (400, {"error": {"message": "Model Not Exist", "type": "invalid_request_error"}}, F.INVALID, True),
    (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}, F.INVALID, False),
    (
        401,
        {"error": {"message": "Authentication Fails, Your api key: ****x is invalid", "type": "authentication_error"}},
        F.AUTH,
        False,
    ),
    (
        400,
        {"object": "error", "message": "Invalid model: foo", "type": "invalid_model", "code": "1500"},
        F.INVALID,
        True,
    ),
    (401, {"detail": "Unauthorized"}, F.AUTH, False),
    (
        422,
        {
            "detail": [
                {
                    "type": "less_than_equal",
                    "loc": ["body", "temperature"],
                    "msg": "Input should be less than or equal to 1.5",
                    "input": 2.0,
                }
            ]
        },
        F.INVALID,
        False,
    ),
    (
        404,
        {
            "error": {
                "message": "The model `foo` does not exist or you do not have access to it.",
                "type": "invalid_request_error",
                "code": "model_not_found",
            }
        },
        F.INVALID,
        True,
    ),
    (
        400,
        {
            "error": {
                "message": "The model `x` has been decommissioned and is no longer supported.",
                "type": "invalid_request_error",
                "code": "model_decommissioned",
            }
        },
        F.INVALID,
        True,
    ),
    (
        413,
        {
            "error": {
                "message": "Request too large for model `x` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
        F.INVALID,
        False,
    ),
    (498, {"error": {"message": "Flex tier capacity exceeded"}}, F.RATE_LIMIT, False),
    (
        404,
        {
            "error": {
                "message": "Unable to access model foo. Please visit https://api.together.ai/models",
                "type": "invalid_request_error",
                "code": "model_not_available",
            }
        },
        F.INVALID,
        True,
    ),
    (
        404,
        {
            "error": {
                "object": "error",
                "type": "invalid_request_error",
                "code": "NOT_FOUND",
                "message": "Model not found, inaccessible, and/or not deployed",
            }
        },
        F.INVALID,
        True,
    ),
    (
        404,
        {
            "message": "Model foo does not exist or you do not have access to it.",
            "type": "not_found_error",
            "param": "model",
            "code": "model_not_found",
        },
        F.INVALID,
        True,
    ),
    (
        404,
        {"error": {"message": "Not found the model foo or Permission denied", "type": "resource_not_found_error"}},
        F.INVALID,
        True,
    ),
    (
        400,
        {
            "error": {
                "message": "The requested model 'foo' does not exist.",
                "type": "invalid_request_error",
                "param": "model",
                "code": "model_not_found",
            }
        },
        F.INVALID,
        True,
    ),
    (
        400,
        {
            "error": {
                "message": "Invalid model 'foo'. Permitted models can be found in the documentation at https://docs.perplexity.ai/getting-started/models.",
                "type": "invalid_model",
                "code": 400,
            }
        },
        F.INVALID,
        True,
    ),
    (400, {"error": {"code": "1211", "message": "Unknown Model, please check the model code."}}, F.INVALID, True),
    (
        429,
        {"error": {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."}},
        F.INVALID,
        False,
    ),
    (429, {"error": {"code": "1302", "message": "Rate limit reached for requests"}}, F.RATE_LIMIT, False),
    (404, {"error": "model 'foo' not found"}, F.INVALID, True),
    (400, {"error": "registry.ollama.ai/library/gemma:2b does not support tools"}, F.INVALID, False),
    (400, {"error": '"gemma:2b" does not support thinking'}, F.INVALID, False),
    (
        404,
        {
            "object": "error",
            "message": "The model `foo` does not exist.",
            "type": "NotFoundError",
            "param": None,
            "code": 404,
        },
        F.INVALID,
        True,
    ),
    (
        400,
        {
            "error": {
                "message": "Invalid model name passed in model=foo. Call `/v1/models` to view available models for your key.",
                "type": "None",
                "param": "None",
                "code": "400",
            }
        },
        F.INVALID,
        True,
    ),
    (
        404,
        {
            "error": {
                "code": "DeploymentNotFound",
                "message": "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try again.",
            }
        },
        F.INVALID,
        True,
    ),
    (400, {"error": {"message": 'Model "foo" not found. Please specify a valid model.'}}, F.INVALID, True),
    (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, F.WARMUP, False),
]


@pytest.mark.parametrize(("status", "body", "kind", "is_denial"), REFUSALS)
def test_a_documented_refusal_has_its_class(status, body, kind, is_denial):
    failure = classify(status, {}, json.dumps(body).encode(), 0)

    assert failure.kind is kind
    assert denies_model(failure.detail) or status == 404 or not is_denial
    # Nothing that stays as it is is tried again.
    assert failure.is_retryable() is (kind in {F.RATE_LIMIT, F.SERVER, F.GATEWAY, F.WARMUP})
