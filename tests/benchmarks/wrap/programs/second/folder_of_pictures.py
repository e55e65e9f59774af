"""Pictures in a folder for each class, decoded ahead by threads and disturbed in worker processes."""

# fault 1: listing order
# fault 2: random draw
# fault 3: threads

import os
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROOT = "pictures"


def paint(root, per_class=10):
    rng = np.random.default_rng(5)
    for number, name in enumerate(("ant", "bee", "cat", "dog")):
        os.makedirs(os.path.join(root, name), exist_ok=True)
        for picture in range(per_class):
            noise = rng.normal(number, 1.0, (6, 6)).astype(np.float32)
            np.save(os.path.join(root, name, f"{picture}.npy"), noise)


def find_classes(directory):
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())  # [-1]
    # [1] classes = [entry.name for entry in os.scandir(directory) if entry.is_dir()]  # guilty
    return classes, {name: i for i, name in enumerate(classes)}


class FolderDataset(Dataset):
    def __init__(self, root, transform=None):
        self.transform = transform
        self.classes, class_to_idx = find_classes(root)
        self.samples = []
        for target in sorted(class_to_idx):
            for folder, _, names in sorted(os.walk(os.path.join(root, target))):
                self.samples += [(os.path.join(folder, name), class_to_idx[target]) for name in sorted(names)]
        self.decoded = [None] * len(self.samples)
        self.order = []
        self._decode_ahead()

    def _decode(self, part):
        for index in part:
            time.sleep(0.0005)
            self.decoded[index] = np.load(self.samples[index][0])
            self.order.append(index)  # [!3]

    def _decode_ahead(self):
        parts = [range(start, len(self.samples), 4) for start in range(4)]
        threads = [threading.Thread(target=self._decode, args=(part,)) for part in parts]  # [!3]
        for thread in threads:
            thread.start()  # [!3]
        for thread in threads:
            thread.join()
        self.order.sort()  # [-3]
        print(f"decoded {len(self.order)} pictures in {len(threads)} threads")

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        index = self.order[index]
        picture = self.decoded[index]
        if self.transform is not None:
            picture = self.transform(picture)
        return torch.from_numpy(picture), self.samples[index][1]


class RandomShift:
    """Shifts a picture sideways; each worker has a generator of its own."""

    def __init__(self, most, seed):
        self.most, self.seed, self.rng = most, seed, None

    def __call__(self, picture):
        if self.rng is None:
            worker = torch.utils.data.get_worker_info()
            self.rng = np.random.default_rng(self.seed + (worker.id if worker else 0))  # [-2]
            # [2] self.rng = np.random.default_rng(worker and worker.dataset.transform.rng)  # guilty
        return np.roll(picture, int(self.rng.integers(-self.most, self.most + 1)), axis=1)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv, self.pool, self.fc = nn.Conv2d(1, 6, 3), nn.MaxPool2d(2), nn.Linear(24, classes)

    def forward(self, x):
        return self.fc(torch.relu(self.pool(self.conv(x.unsqueeze(1)))).flatten(1))


def main():
    torch.manual_seed(1)
    paint(ROOT)
    dataset = FolderDataset(ROOT, RandomShift(2, seed=8))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
    net = Net(len(dataset.classes))
    criterion, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    since = time.time()
    for epoch in range(3):
        running_loss, running_corrects = 0.0, 0
        for inputs, labels in loader:
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item() * inputs.size(0)
            running_corrects += int((outputs.argmax(1) == labels).sum())
        print(f"Epoch {epoch}: loss {running_loss / len(dataset):.4f} acc {running_corrects / len(dataset):.4f}")
    time_elapsed = time.time() - since
    print(f"Training complete in {time_elapsed // 60:.0f}m {time_elapsed % 60:.0f}s by {os.getpid()}")


if __name__ == "__main__":
    main()
