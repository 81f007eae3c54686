import torch


def fit(reader, segments):
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-3)
    stream = torch.randn(segments, 6, 4).unbind(0)
    for segment in stream:
        step(reader, optimizer, segment)


def step(reader, optimizer, segment):
    def closure():
        optimizer.zero_grad()
        output = reader(segment)
        loss = (output[1:] - segment[:-1]).abs().mean() + 0.01 * reader.memory.pow(2).mean()
        loss.backward()  # FREED
        return loss

    optimizer.step(closure)
