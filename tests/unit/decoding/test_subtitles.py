"""The cues of a sound."""

from transformer.decoding.subtitles import subtitles
from transformer.decoding.translator import TimedText

SEGMENTS = [
    TimedText(0.0, 1.5, "R&D <b> 3 < 4 --> 5"),
    TimedText(1.5, 2.0, ""),
    TimedText(3723.0, 3724.25, 'a "b"'),
]


def test_webvtt_escapes_its_markup() -> None:
    assert subtitles(SEGMENTS, "vtt") == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:01.500\nR&amp;D &lt;b&gt; 3 &lt; 4 --&gt; 5\n\n"
        '01:02:03.000 --> 01:02:04.250\na "b"\n'
    )


def test_subrip_has_no_entities() -> None:
    assert subtitles(SEGMENTS, "srt") == (
        "1\n00:00:00,000 --> 00:00:01,500\nR&D <b> 3 < 4 --> 5\n\n"
        '2\n01:02:03,000 --> 01:02:04,250\na "b"\n'
    )
