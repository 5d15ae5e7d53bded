"""The learning rate over the course of a training. Pure."""

import math

_LAST_SHARE = 0.01  # of the highest rate, at the end


def learning_rate(step: int, num_steps: int, *, highest: float, num_warm_up: int) -> float:
    """Of the step, counted from 0: rises in equal steps to `highest`, then falls as half a cosine to a hundredth."""
    if step < num_warm_up:
        return highest * (step + 1) / num_warm_up
    progress = min(1.0, (step - num_warm_up) / max(1, num_steps - num_warm_up))
    falling = (1 + math.cos(math.pi * progress)) / 2
    return highest * (_LAST_SHARE + (1 - _LAST_SHARE) * falling)
