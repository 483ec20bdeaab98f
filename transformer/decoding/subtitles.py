"""Subtitles of a sound: SubRip (``.srt``) and WebVTT (``.vtt``, W3C 2019)."""

import html
from collections.abc import Iterable

from transformer.decoding.translator import TimedText
from transformer.settings.translator import SubtitleForm


def subtitles(segments: Iterable[TimedText], form: SubtitleForm) -> str:
    """A cue for each segment that has a text."""
    cues = [
        f"{_time(start, form)} --> {_time(end, form)}\n{_text(text, form)}\n"
        for start, end, text in segments
        if text
    ]
    if form == "srt":
        return "\n".join(f"{number}\n{cue}" for number, cue in enumerate(cues, start=1))
    return "\n".join(["WEBVTT\n", *cues])


def _text(text: str, form: SubtitleForm) -> str:
    """As it is in SubRip; in WebVTT, which has markup, with entities for ``&``, ``<`` and ``>``."""
    return text if form == "srt" else html.escape(text, quote=False)


def _time(seconds: float, form: SubtitleForm) -> str:
    """``00:01:02,345`` in SubRip, ``00:01:02.345`` in WebVTT."""
    whole, milliseconds = divmod(round(1000 * seconds), 1000)
    minutes, second = divmod(whole, 60)
    hour, minute = divmod(minutes, 60)
    mark = "," if form == "srt" else "."
    return f"{hour:02}:{minute:02}:{second:02}{mark}{milliseconds:03}"
