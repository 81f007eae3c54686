# rule: output-on-ctx
# says: own output
import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * torch.sigmoid(x)
        ctx.result = y
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return g * (s + ctx.result * (1 - s))


w = torch.randn(3, requires_grad=True)
for _ in range(3):
    Swish.apply(w).sum().backward()
