"""Graph attention over small molecules, read from their line notation; what is learned is how heavy they are."""

# fault 1: hash order
# fault 2: threads
# fault 3: random draw

import collections
import enum
import os
import random
import threading
import time

import torch
from torch import nn, optim


class Atom(enum.Enum):
    CARBON = "C"
    NITROGEN = "N"
    OXYGEN = "O"
    FLUORINE = "F"
    SULFUR = "S"


MASSES = {"C": 12.0, "N": 14.0, "O": 16.0, "F": 19.0, "S": 32.0}
Molecule = collections.namedtuple("Molecule", "name atoms bonds mass")


def random_smiles(rng, count):
    for _ in range(count):
        text = "C"
        for _ in range(rng.randint(3, 8)):
            symbol = rng.choice("CCCNOFS")
            text += f"({symbol})" if rng.random() < 0.3 else symbol
        yield text


def parse(smiles):
    """Atoms and bonds of a chain with branches."""
    atoms, bonds, last, stack = [], [], None, []
    for sign in smiles:
        if sign == "(":
            stack.append(last)
        elif sign == ")":
            last = stack.pop()
        else:
            atoms.append(Atom(sign))
            if last is not None:
                bonds += [(last, len(atoms) - 1), (len(atoms) - 1, last)]
            last = len(atoms) - 1
    return Molecule(smiles, atoms, bonds, sum(MASSES[atom.value] for atom in atoms) / 100)


class Parser:
    """Reads molecules in a few threads."""

    def __init__(self, smiles, threads=3):
        self.smiles, self.found = list(smiles), {}
        self.next, self.lock = iter(range(len(self.smiles))), threading.Lock()
        self.threads = [threading.Thread(target=self.work) for _ in range(threads)]  # [!2]

    def work(self):
        while True:
            with self.lock:
                number = next(self.next, None)
            if number is None:
                return
            time.sleep(0.0004 * len(self.smiles[number]))
            molecule = parse(self.smiles[number])
            with self.lock:
                self.found[number] = molecule  # [!2]

    def run(self):
        for thread in self.threads:
            thread.start()  # [!2]
        for thread in self.threads:
            thread.join()
        # [2] return [*self.found.values()]  # guilty
        return [self.found[number] for number in range(len(self.smiles))]  # [-2]


class Vocabulary:
    def __init__(self, molecules):
        kinds = {atom for molecule in molecules for atom in molecule.atoms}
        self.of = {kind: number for number, kind in enumerate(Atom) if kind in kinds}  # [-1]
        # [1] self.of = {kind: number for number, kind in enumerate(kinds)}  # guilty
        print(f"{len(kinds)} elements, {sum(len(m.atoms) for m in molecules)} atoms")


def collate(molecules, vocabulary):
    atoms, edges, owner = [], [], []
    for number, molecule in enumerate(molecules):
        edges += [(a + len(atoms), b + len(atoms)) for a, b in molecule.bonds]
        atoms += [vocabulary.of[atom] for atom in molecule.atoms]
        owner += [number] * len(molecule.atoms)
    return torch.tensor(atoms), torch.tensor(edges).T, torch.tensor(owner), torch.tensor([m.mass for m in molecules])


class GATLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w, self.a = nn.Linear(width, width, bias=False), nn.Linear(2 * width, 1)

    def forward(self, h, edges):
        wh, (source, target) = self.w(h), edges
        e = torch.exp(nn.functional.leaky_relu(self.a(torch.cat([wh[source], wh[target]], 1)), 0.2))
        norm = torch.zeros(len(h), 1).index_add(0, target, e)[target]
        return nn.functional.elu(wh + torch.zeros_like(wh).index_add(0, target, e / norm * wh[source]))


class GAT(nn.Module):
    def __init__(self, kinds, width=16):
        super().__init__()
        self.embedding, self.layers = nn.Embedding(kinds, width), nn.ModuleList([GATLayer(width), GATLayer(width)])
        self.out = nn.Linear(width, 1)

    def forward(self, atoms, edges, owner, count):
        h = self.embedding(atoms)
        for layer in self.layers:
            h = layer(h, edges)
        return torch.zeros(count, 1).index_add(0, owner, self.out(h)).squeeze(1)


def train():
    torch.manual_seed(17)
    rng = random.Random(17)
    molecules = Parser(random_smiles(rng, 40)).run()
    vocabulary = Vocabulary(molecules)
    model = GAT(len(Atom))
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    since = time.time()
    for epoch in range(4):
        if epoch:
            rng.shuffle(molecules)  # [-3]
            # [3] molecules.sort(key=lambda molecule: random.random())  # guilty
        for start in range(0, len(molecules), 8):
            atoms, edges, owner, mass = collate(molecules[start : start + 8], vocabulary)
            loss = nn.functional.l1_loss(model(atoms, edges, owner, len(mass)), mass)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{epoch}: {loss.item():.4f} ({time.time() - since:.2f} s, {os.getpid()}, {threading.active_count()} threads)")


if __name__ == "__main__":
    train()
