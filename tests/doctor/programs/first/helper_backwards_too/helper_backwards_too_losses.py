def regression_loss(prediction, target):
    value = (prediction - target).pow(2).mean()  # MADE
    value.backward()  # FREED
    return value
