"""The body of every answer that is no success, in OpenAI's words."""

from pydantic import BaseModel, Field


class ErrorDetails(BaseModel):
    message: str = Field(description="What is wrong, and what to do about it, for people.")
    type: str = Field(description="What kind of error it is, as OpenAI names them: invalid_request_error, for one.")
    param: str | None = Field(description="The field of the request that is at fault, if one is.")
    code: str | None = Field(description="What is wrong, for programs, if there is a word for it.")


class ErrorReply(BaseModel):
    """An error. As the last event of a stream, it tells that the reply could not be finished."""

    error: ErrorDetails = Field(description="The error.")
