"""Proximal policy optimization in corridors that are walked side by side, one thread for each."""

# fault 1: threads
# fault 2: clock
# fault 3: random draw

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical


@dataclass
class Args:
    exp_name: str = "corridors"
    seed: int = 1
    num_envs: int = 4
    num_steps: int = 16
    num_iterations: int = 5
    num_minibatches: int = 2
    update_epochs: int = 2
    learning_rate: float = 2.5e-3
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    gamma: float = 0.97
    gae_lambda: float = 0.95


class Corridor:
    """Left or right; gold lies at one end, and a gust may blow the walker back."""

    def __init__(self, rng, length=9):
        self.rng, self.length = rng, length
        self.reset()

    def reset(self):
        self.place, self.age = int(self.rng.integers(1, self.length - 1)), 0
        return self.observe()

    def observe(self):
        return np.array([self.place / self.length, self.age / 20, np.sin(self.place)], dtype=np.float32)

    def step(self, action):
        time.sleep(0.0005)  # the simulator is slow
        gust = self.rng.random() < 0.15
        self.place += -1 if gust else 2 * int(action) - 1
        self.age += 1
        done = self.place in (0, self.length) or self.age > 20
        reward = float(self.place == self.length) - 0.01
        return (self.reset() if done else self.observe()), reward, done


class VectorEnv:
    def __init__(self, envs):
        self.envs = envs
        self.pool = ThreadPoolExecutor(len(envs), thread_name_prefix="env")  # [!1]

    def reset(self):
        return torch.from_numpy(np.stack([env.reset() for env in self.envs]))

    def step(self, actions):
        results = self.pool.map(lambda pair: pair[0].step(pair[1]), zip(self.envs, actions.tolist()))  # [!1]
        obs, rewards, dones = zip(*results)
        return torch.from_numpy(np.stack(obs)), torch.tensor(rewards), torch.tensor(dones, dtype=torch.float)


def make_envs(args):
    root = np.random.default_rng(args.seed)
    # [1] return VectorEnv([Corridor(root) for _ in range(args.num_envs)])  # guilty
    return VectorEnv([Corridor(rng) for rng in root.spawn(args.num_envs)])  # [-1]


def layer_init(layer, std=1.4142, bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(3, 24)), nn.Tanh(), layer_init(nn.Linear(24, 1), std=1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(3, 24)), nn.Tanh(), layer_init(nn.Linear(24, 2), std=0.01))

    def act(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x).squeeze(-1)


def advantages_of(args, rewards, values, dones, last):
    advantages, running = torch.zeros_like(rewards), torch.zeros(args.num_envs)
    for step in reversed(range(args.num_steps)):
        following = last if step == args.num_steps - 1 else values[step + 1]
        delta = rewards[step] + args.gamma * following * (1 - dones[step]) - values[step]
        running = delta + args.gamma * args.gae_lambda * (1 - dones[step]) * running
        advantages[step] = running
    return advantages


def main(args):
    run_name = f"{args.exp_name}__{args.seed}__{int(time.time())}"
    print(run_name, os.getpid(), asdict(args))
    torch.manual_seed(args.seed)
    shuffler = np.random.default_rng(args.seed)
    envs, agent = make_envs(args), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    obs, start_time, global_step = envs.reset(), time.time(), 0
    for iteration in range(args.num_iterations):
        frac = 1.0 - iteration / args.num_iterations  # [-2]
        # [2] frac = 1.0 - iteration / max(args.num_iterations, global_step / (time.time() - start_time))  # guilty
        optimizer.param_groups[0]["lr"] = frac * args.learning_rate
        rows = []
        for _ in range(args.num_steps):
            global_step += args.num_envs
            with torch.no_grad():
                action, logprob, _, value = agent.act(obs)
            following, reward, done = envs.step(action)
            rows.append((obs, action, logprob, value, reward, done))
            obs = following
        b_obs, b_actions, b_logprobs, b_values, b_rewards, b_dones = map(torch.stack, zip(*rows))
        with torch.no_grad():
            b_advantages = advantages_of(args, b_rewards, b_values, b_dones, agent.critic(obs).squeeze(-1))
        returns = (b_advantages + b_values).flatten()
        b_inds = np.arange(args.num_envs * args.num_steps)
        for _ in range(args.update_epochs):
            shuffler.shuffle(b_inds)  # [-3]
            # [3] np.random.shuffle(b_inds)  # guilty
            for mb_inds in np.split(b_inds, args.num_minibatches):
                _, newlogprob, entropy, newvalue = agent.act(b_obs.flatten(0, 1)[mb_inds], b_actions.flatten()[mb_inds])
                ratio = (newlogprob - b_logprobs.flatten()[mb_inds]).exp()
                mb = b_advantages.flatten()[mb_inds]
                clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(-mb * ratio, -mb * clipped).mean()
                loss = pg_loss - args.ent_coef * entropy.mean() + 0.5 * (newvalue - returns[mb_inds]).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        print(f"SPS: {int(global_step / (time.time() - start_time))}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main(Args())
