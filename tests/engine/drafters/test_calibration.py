import numpy as np
import pytest

from mtplx.engine.drafters.calibration import Calibration


def test_at_first_a_probability_is_taken_at_its_word() -> None:
    assert [Calibration().rate(probability) for probability in (0.1, 0.5, 1.0)] == pytest.approx([0.1, 0.5, 1.0])


def test_what_survived_decides_in_the_end_for_each_confidence_by_itself() -> None:
    calibration, random = Calibration(), np.random.default_rng(0)
    for _ in range(4000):
        probability = random.choice([0.25, 0.85])
        calibration.observe(probability, random.random() < (0.4 if probability == 0.25 else 0.95))
    assert calibration.rate(0.25) == pytest.approx(0.4, abs=0.08)
    assert calibration.rate(0.85) == pytest.approx(0.95, abs=0.08)
    assert calibration.usual_rate == pytest.approx(0.675, abs=0.08)
