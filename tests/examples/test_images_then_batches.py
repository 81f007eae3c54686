"""The example of the first story, small."""

import pytest
import torch
from examples import images_then_batches as example


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    images, labels = example.digits(rows=200)
    return example.train(images, labels, epochs=2), images


def test_the_picks_are_the_least_certain_of_their_class(trained):
    net, images = trained
    picked = example.pick(net, images, each=3)
    outputs = net(images).detach()
    leads = example.lead(outputs)
    assert [chosen.label for chosen in picked] == list(range(10))
    for chosen in picked:
        assert (outputs[chosen.rows].argmax(1) == chosen.label).all()
        others = leads[outputs.argmax(1) == chosen.label]
        assert torch.allclose(chosen.lead, others.sort().values[:3], atol=1e-5)


def test_all_ways_find_the_same_gradients_and_are_timed(trained):
    net, images = trained
    seconds = example.timed(net, images, repeats=1)
    assert list(seconds) == list(example.WAYS)
    assert all(value >= 0 for value in seconds.values())


def test_a_step_along_the_gradient_widens_the_lead(trained):
    net, images = trained
    for chosen in example.pick(net, images, each=1):
        if len(chosen.rows):
            x = images[chosen.rows]
            with torch.no_grad():
                before = example.lead(net(x))
                after = example.lead(net(x + 1e-3 * chosen.gradient / chosen.gradient.norm()))
            assert (after > before).all()


def test_the_picture_is_drawn(trained, tmp_path):
    net, images = trained
    picked = [chosen for chosen in example.pick(net, images, each=1) if len(chosen.rows)]
    example.draw(images, net(images).detach(), picked, tmp_path / "uncertain.png")
    assert (tmp_path / "uncertain.png").read_bytes().startswith(b"\x89PNG")
