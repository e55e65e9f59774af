"""An image is changed until its statistics are those of another one, as in neural style transfer."""

# fault 1: random draw
# fault 2: clock
# fault 3: unwritten memory

import os
import time

import torch
import torch.nn.functional as F
from torch import nn, optim

SIZE = 16


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3), nn.Conv2d(8, 8, 3)])

    def forward(self, x):
        out = []
        for layer in self.layers:
            x = F.relu(layer(x))
            out.append(x)
        return out


def gram(x):
    flat = x.flatten(2).squeeze(0)
    return flat @ flat.T / flat.numel()


def pictures(seed):
    generator = torch.Generator().manual_seed(seed)
    ramp = torch.linspace(0, 1, SIZE).expand(1, 3, SIZE, SIZE)
    return ramp.clone(), torch.rand(1, 3, SIZE, SIZE, generator=generator)


def begin_from(content, how):
    if how == "noise":
        return torch.rand(content.shape)
    canvas = torch.zeros_like(content)  # [-3]
    # [3] canvas = torch.empty_like(content)  # guilty
    canvas[:, :, 2:-2, 2:-2] = content[:, :, 2:-2, 2:-2]
    return canvas.nan_to_num(0.0, 1.0, 0.0).clamp(0, 1)


def style_weight(step, watch):
    return 200.0 * (1 + step / 20)  # [-2]
    # [2] return 200.0 * (1 + watch.seconds())  # guilty


class Watch:
    def __init__(self):
        self.start = time.perf_counter()

    def seconds(self):
        return time.perf_counter() - self.start


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module.eval()


def main():
    # [1] net = freeze(Features())  # guilty
    torch.manual_seed(0)  # [!1]
    net = freeze(Features())  # [-1]
    content, style = pictures(21)
    targets = [gram(part) for part in net(style)]
    wanted = net(content)[1].detach()
    image = begin_from(content, "content").requires_grad_()
    optimizer, watch = optim.Adam([image], lr=0.05), Watch()
    for step in range(20):
        found = net(image)
        losses = [F.mse_loss(gram(part), target) for part, target in zip(found, targets)]
        loss = F.mse_loss(found[1], wanted) + style_weight(step, watch) * sum(losses)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{os.getpid()} step {step}: {loss.item():.4f} in {watch.seconds():.2f} s")


main()
