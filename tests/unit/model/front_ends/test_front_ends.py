"""Front ends equal other implementations; padding changes nothing."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer.model.front_ends.convolutions import StridedConvolutions, WhisperConvolutions
from transformer.model.front_ends.linear import LinearFrontEnd
from transformer.model.front_ends.patches import PatchEmbedding

MELS, WIDTH = 5, 8


def frames_of(count: int, mels: int = MELS) -> Tensor:
    return torch.randn(1, count, mels, generator=torch.Generator().manual_seed(count))


def grouped(frames: Tensor, stride: int, length: int) -> Tensor:
    """Frames as a source of ``length`` vectors, the rest NaN."""
    source = torch.full((1, length * stride, frames.size(2)), torch.nan)
    source[:, : frames.size(1)] = frames
    return source.reshape(1, length, -1)


@pytest.mark.parametrize("count", [1, 2, 6, 7])
def test_whisper(count: int) -> None:
    """Against the convolutions of transformers, as its encoder calls them."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes: dict[str, Any] = {"encoder_layers": 0, "encoder_attention_heads": 2}
    theirs = WhisperEncoder(WhisperConfig(num_mel_bins=MELS, d_model=WIDTH, **sizes))
    ours = WhisperConvolutions(MELS, WIDTH)
    ours.first.load_state_dict(theirs.conv1.state_dict())
    ours.second.load_state_dict(theirs.conv2.state_dict())
    frames = frames_of(count)
    gelu = nn.functional.gelu
    expected = gelu(theirs.conv2(gelu(theirs.conv1(frames.transpose(1, 2))))).transpose(1, 2)
    result = ours(grouped(frames, 2, (count + 1) // 2))
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [1, 4, 13, 15])
def test_strided(count: int) -> None:
    """Against Speech2Text of transformers, which is fairseq's."""
    from transformers import Speech2TextConfig
    from transformers.models.speech_to_text.modeling_speech_to_text import Conv1dSubsampler

    theirs = Conv1dSubsampler(
        Speech2TextConfig(input_feat_per_channel=MELS, conv_channels=2 * WIDTH, d_model=WIDTH)
    )
    ours = StridedConvolutions(MELS, WIDTH)
    ours.first.load_state_dict(theirs.conv_layers[0].state_dict())
    ours.second.load_state_dict(theirs.conv_layers[1].state_dict())
    frames = frames_of(count)
    result = ours(grouped(frames, 4, (count + 3) // 4))
    torch.testing.assert_close(result, theirs(frames), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "stride"), [(WhisperConvolutions, 2), (StridedConvolutions, 4)])
def test_a_short_sound_in_a_batch_equals_that_alone(kind: Any, stride: int) -> None:
    front_end = kind(MELS, WIDTH)
    nn.init.ones_(front_end.first.bias)  # what padding gives must not be zero by chance
    for count in range(1, 4 * stride):
        frames = frames_of(count)
        length = -(-count // stride)
        alone = front_end(grouped(frames, stride, length))
        batch = front_end(
            torch.cat([grouped(frames, stride, 6), grouped(frames_of(6 * stride), stride, 6)])
        )
        torch.testing.assert_close(batch[:1, :length], alone, rtol=0, atol=1e-6)
        assert batch.isfinite().all()


def test_patches_are_a_convolution_as_wide_as_its_stride() -> None:
    """Against ViT's embeddings in transformers, whose kernel has the channel first."""
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    sizes: dict[str, Any] = {"image_size": 6, "patch_size": 2, "num_channels": 3}
    theirs = ViTEmbeddings(ViTConfig(hidden_size=WIDTH, **sizes))
    nn.init.normal_(theirs.cls_token)
    nn.init.zeros_(theirs.position_embeddings)
    kernel = theirs.patch_embeddings.projection
    ours = PatchEmbedding(12, WIDTH, class_token=True)
    assert ours.class_token is not None
    with torch.no_grad():
        # width channel tall wide -> width (tall wide channel)
        ours.linear.weight.copy_(kernel.weight.permute(0, 2, 3, 1).flatten(1))
        ours.linear.bias.copy_(kernel.bias)
        ours.class_token.copy_(theirs.cls_token[0, 0])
    picture = torch.randn(2, 6, 6, 3)
    # batch (row tall) (column wide) channel -> batch (row column) (tall wide channel)
    cut = picture.reshape(2, 3, 2, 3, 2, 3).transpose(2, 3).reshape(2, 9, 12)
    expected = theirs(picture.permute(0, 3, 1, 2))
    torch.testing.assert_close(ours(cut), expected, rtol=0, atol=1e-6)
    ours.class_token = None
    torch.testing.assert_close(ours(cut), expected[:, 1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [PatchEmbedding, LinearFrontEnd])
def test_padding_is_no_nan(kind: Any) -> None:
    front_end = kind(MELS, WIDTH)
    source = frames_of(3)
    source[:, 2] = torch.nan
    result = front_end(source)
    torch.testing.assert_close(result[:, :2], front_end.linear(source[:, :2]), rtol=0, atol=1e-6)
    assert result.isfinite().all()
    result.sum().backward()
    assert front_end.linear.weight.grad.isfinite().all()
