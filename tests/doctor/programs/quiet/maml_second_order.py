import torch

theta = torch.randn(3, requires_grad=True)
opt = torch.optim.SGD([theta], 0.05)


def task_loss(w, x, y):
    return (x @ w - y).pow(2).mean()


for _ in range(4):
    outer = 0.0
    for _ in range(2):
        x, y = torch.randn(8, 3), torch.randn(8)
        fast = theta
        for _ in range(3):
            (g,) = torch.autograd.grad(task_loss(fast, x, y), fast, create_graph=True)
            fast = fast - 0.1 * g
        outer = outer + task_loss(fast, x, y)
    opt.zero_grad()
    outer.backward()
    opt.step()
