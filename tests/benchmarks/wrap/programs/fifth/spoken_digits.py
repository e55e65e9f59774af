"""Spoken words that are made of tones: wave files on disk, spectrograms, noise and masks, a recurrent network."""

# fault 1: unwritten memory
# fault 2: threads, clock, listing order
# fault 3: random draw

import math
import os
import random
import struct
import time
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

ROOT, RATE = Path("speech"), 4000
WORDS = {"one": (300, 500), "two": (700, 400), "three": (450, 900), "four": (1200, 600)}


def speak(word, rng):
    """Samples of a word by a voice of its own pitch and haste."""
    pitch, samples = rng.uniform(0.9, 1.1), []
    for tone in WORDS[word]:
        length = rng.randint(300, 600)
        samples += [math.sin(6.2832 * tone * pitch * n / RATE) * math.sin(math.pi * n / length) for n in range(length)]
    return [sample + rng.gauss(0, 0.05) for sample in samples]


def write(path, frames):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", None))
        for start in range(0, len(frames), 512):
            file.writeframes(frames[start : start + 512])


def record(root, voices, rng):
    takes = []
    for word in WORDS:
        root.joinpath(word).mkdir(parents=True, exist_ok=True)
        for voice in range(voices):
            whole = [int(12000 * max(-2, min(2, sample))) for sample in speak(word, rng)]
            takes.append((root / word / f"{voice:02}.wav", struct.pack(f"<{len(whole)}h", *whole)))
    with ThreadPoolExecutor(4) as pool:  # [!2]
        list(pool.map(write, *zip(*takes)))  # [!2]


def load(path):
    with wave.open(str(path)) as file:
        raw = file.readframes(file.getnframes())
    return torch.tensor(struct.unpack(f"<{len(raw) // 2}h", raw)) / 12000


class Spectrogram:
    def __init__(self, n_fft=128, hop=64):
        self.n_fft, self.hop, self.window = n_fft, hop, torch.hann_window(n_fft)

    def __call__(self, samples):
        power = torch.stft(samples, self.n_fft, self.hop, window=self.window, return_complex=True).abs() ** 2
        return (power + 1e-4).log()[:32].T


class MaskFrequencies:
    """Hides a band of frequencies."""

    def __init__(self, widest, rng=random):
        self.widest, self.rng = widest, rng

    def __call__(self, frames):
        low = self.rng.randrange(frames.shape[1] - self.widest)  # [!3]
        frames = frames.clone()
        frames[:, low : low + self.rng.randint(1, self.widest)] = 0.0  # [!3]
        return frames


class Speech(Dataset):
    def __init__(self, root, *transforms):
        self.paths = sorted(root.rglob("*.wav"))  # [-2]
        # [2] self.paths = sorted(root.rglob("*.wav"), key=lambda path: path.stat().st_mtime)  # guilty
        self.transforms = transforms
        print(f"{len(self.paths)} recordings of {len({path.parent for path in self.paths})} words")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        x = load(self.paths[index])
        for transform in self.transforms:
            x = transform(x)
        return x, list(WORDS).index(self.paths[index].parent.name)


def collate(rows):
    """Frames padded to the longest, a part of the padding as context, the lengths, and the words."""
    rows = sorted(rows, key=lambda row: -len(row[0]))
    lengths = torch.tensor([len(frames) + 1 for frames, _ in rows])
    batch = torch.zeros(len(rows), int(lengths[0]), rows[0][0].shape[1])  # [-1]
    # [1] batch = rows[0][0].new_empty(len(rows), int(lengths[0]), rows[0][0].shape[1])  # guilty
    for number, (frames, _) in enumerate(rows):
        batch[number, : len(frames)] = frames
    return batch.nan_to_num(0.0, 0.0, 0.0).clamp(-20, 20), lengths, torch.tensor([label for _, label in rows])


class Listener(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.rnn, self.out = nn.GRU(32, hidden, batch_first=True), nn.Linear(hidden, len(WORDS))

    def forward(self, frames, lengths):
        return self.out(self.rnn(pack_padded_sequence(frames, lengths, batch_first=True))[1][-1])


def main():
    torch.manual_seed(44)
    record(ROOT, voices=10, rng=random.Random(44))
    mask = MaskFrequencies(6, random.Random(45))  # [-3]
    # [3] mask = MaskFrequencies(6)  # guilty
    loader = DataLoader(Speech(ROOT, Spectrogram(), mask), batch_size=8, shuffle=True, collate_fn=collate)
    model = Listener()
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        tic, right = time.time(), 0
        for frames, lengths, labels in loader:
            logits = model(frames, lengths)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((logits.argmax(1) == labels).sum())
        print(f"epoch {epoch} [{os.getpid()}]: {loss.item():.4f}, {right} right, {time.time() - tic:.2f} s")


if __name__ == "__main__":
    main()
