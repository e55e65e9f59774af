model = nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 4))
optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
first = 0
if resume:
    saved = torch.load("cells.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    # <resume>
    torch.set_rng_state(saved["rng"])
    first = saved["step"]
now = time.time()
for step in range(first, 30):
    chosen = [order[(step * 10 + k) % len(order)] for k in range(10)]
    x = inputs[chosen]
    # <sample>
    # <batch>
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), targets[chosen]).backward()
    optimizer.step()
    if step % 5 == 4:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        torch.save({**state, "step": step + 1}, "cells.pt")
print("took", round(time.time() - now, 2))
