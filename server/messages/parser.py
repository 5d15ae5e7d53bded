"""The model's text, as it comes, into a message's parts.

Knows the markers of thinking and of tool calls; what is between those of calls is for the blocks. Knows no HTTP.
"""

import secrets
from collections.abc import Sequence

from mtplx.engine.text.abilities import ChatAbilities, Tool
from mtplx.server.messages.blocks import ArgumentsText, Block, CallName, NoCall, ParsedBlock, Piece
from mtplx.server.messages.json_blocks import JsonBlock
from mtplx.server.messages.markers import cut_at_marker
from mtplx.server.messages.parts import ContentText, Part, ReasoningText, ToolArguments, ToolCallOpened
from mtplx.server.messages.runs import Run


class MessageParser:
    """Parts that come out are final, and how the text is cut into pieces makes no difference to them.

    Without `tools` there are no calls, whatever the text looks like. `is_thinking` says that the prompt has opened the
    block of thinking already. Of more calls than `most_calls` the further ones are left out. Where the text
    `must_call`, the beginning of a call that its end cuts short is no content.
    """

    def __init__(
        self,
        abilities: ChatAbilities,
        tools: Sequence[Tool] = (),
        *,
        is_thinking: bool = False,
        most_calls: int | None = None,
        must_call: bool = False,
    ) -> None:
        self.is_thinking = is_thinking
        self.num_calls = 0
        self._abilities = abilities
        self._tools = tools
        self._most_calls = most_calls
        self._must_call = must_call
        self._may_think = True  # thoughts come before all else
        self._run = Run(follows_marker=is_thinking)
        self._held = ""  # may be the beginning of a marker
        self._block: Block | None = None
        self._leaves_out = False

    @property
    def may_think(self) -> bool:
        """Whether thoughts may go on, or are still to come."""
        return self._may_think and self._abilities.thinking is not None

    @property
    def is_within_call(self) -> bool:
        """Whether a call has begun and not ended."""
        return self._block is not None

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        rest: str | None = text
        while rest is not None:
            rest = self._read_block(self._block, rest, parts) if self._block else self._read_text(rest, parts)
        return parts

    def finish(self) -> list[Part]:
        """What was held back, now that nothing follows."""
        parts: list[Part] = []
        if self._block:
            self._take(self._block.finish(), parts)
        if not self._must_call:
            self._say(self._held, parts)
        self._show(self._run.release(), parts)
        return parts

    def _read_text(self, text: str, parts: list[Part]) -> str | None:
        """What comes after the first marker; None where there is none."""
        markers = self._markers()
        cut = cut_at_marker(self._held + text, markers)
        self._held = "" if cut.marker else cut.after
        said = self._run.push(cut.before)
        self._show(said if markers else said + self._run.release(), parts)
        if cut.marker is None:
            return None
        self._pass(cut.marker, parts)
        return cut.after

    def _markers(self) -> list[str]:
        thinking = self._abilities.thinking
        if self.is_thinking and thinking:
            return [thinking.end]
        starts = [thinking.start] if self._may_think and thinking else []
        return [*starts, *self._abilities.fillers, *([self._abilities.tools.start] if self._tools else [])]

    def _pass(self, marker: str, parts: list[Part]) -> None:
        style = self._abilities.tools
        if self.is_thinking:
            self.is_thinking = self._may_think = False
            self._run = Run(follows_marker=True)
        elif marker == style.start:
            self._block = JsonBlock(style, self._tools) if style.is_json else ParsedBlock(style, self._tools)
        elif marker in self._abilities.fillers:
            self._run.pass_marker()
        elif self._may_think:
            self.is_thinking = True
            self._run = Run(follows_marker=True)
        else:  # thoughts, where there was text before them in the same piece
            self._say(marker, parts)

    def _read_block(self, block: Block, text: str, parts: list[Part]) -> str | None:
        self._take(block.push(text), parts)
        if block.rest is not None:
            self._block = None
        return block.rest

    def _take(self, pieces: Sequence[Piece], parts: list[Part]) -> None:
        for piece in pieces:
            match piece:
                case CallName():
                    self._open_call(piece, parts)
                case ArgumentsText():
                    if not self._leaves_out:
                        parts.append(ToolArguments(self.num_calls - 1, piece.text))
                case NoCall() if not self._must_call:
                    self._say(piece.text, parts)

    def _open_call(self, call: CallName, parts: list[Part]) -> None:
        self._run.pass_marker()
        self._may_think = False
        self._leaves_out = self.num_calls == self._most_calls
        if not self._leaves_out:
            parts.append(ToolCallOpened(self.num_calls, call.id or new_call_id(), call.name))
            self.num_calls += 1

    def _say(self, text: str, parts: list[Part]) -> None:
        self._show(self._run.push(text), parts)

    def _show(self, text: str, parts: list[Part]) -> None:
        if text and self.is_thinking:
            parts.append(ReasoningText(text))
        elif text:
            parts.append(ContentText(text))
            self._may_think = False


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
