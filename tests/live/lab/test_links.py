"""Measured jitter and loss of links equal the topology's; each test states its error probability."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import exp, log
from pathlib import Path

import pytest

from pyhooks.lab.topology import Quality
from terminal_user import Person, visiting

ASKED = {
    "a": Quality(20, 4),
    # an odd round trip: without netem one direction has all of it
    "b": Quality(21, 8),
    "c": Quality(10, 0, 10),
    "d": Quality(10, 0, 2),
    "e": Quality(10),
}
ERROR = 1e-6
LOOKS, ECHOES = 6, 100
# share of the echoes, more or less than was asked
LOSS_TOLERANCE = {"c": 0.04, "d": 0.025, "e": 0.01}
LOSS_ECHOES = 3000


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    with visiting(tmp_path_factory.mktemp("state")) as made:
        sites = "".join(f'[[site]]\nname = "{name}"\nbrokers = [{number}]\n' for number, name in enumerate(ASKED, 1))
        links = "".join(
            f'[[link]]\nbetween = ["home", "{name}"]\n'
            + "".join(f"{key} = {value}\n" for key, value in vars(quality).items())
            for name, quality in ASKED.items()
        )
        file = made.folder / "asked.toml"
        home = '[[site]]\nname = "home"\ncontrollers = [101]\nclient = true\n'
        file.write_text(f'name = "asked"\n{sites}{home}{links}', encoding="utf-8")
        made.check_output("lab", "up", "--bare", "--topology", str(file), "--run-dir", str(made.folder / "run"))
        yield made


def echoes(person: Person, site: str, count: int, interval_s: float) -> list[float]:
    """Round trips in milliseconds, of those that came back."""
    ip = f"10.77.{list(ASKED).index(site) + 1}.10"
    command = ["ping", "-n", "-c", str(count), "-i", str(interval_s), "-W", "5", ip]
    text = person.check_output("lab", "exec", "--", *command)
    assert f"{count} packets transmitted" in text
    return [float(found) for found in re.findall(r"time=([0-9.]+) ms", text)]


def tail(count: int, share: float, limit: float) -> float:
    """Chernoff's bound for a share among ``count`` to be as far from its mean as ``limit``, on that side.

    It is exp(-count * KL(limit, share)), KL being the divergence of two coins.
    """
    if not 0 <= limit <= 1:
        return 0.0
    terms = ((limit, share), (1 - limit, 1 - share))
    if any(one > 0 and other == 0 for one, other in terms):
        return 0.0
    return exp(-count * sum(one * log(one / other) for one, other in terms if one > 0))


@pytest.mark.alone
def test_links_have_the_requested_jitter(person: Person) -> None:
    """Noise only adds to a round trip: the shortest bounds jitter downwards, the best sample upwards.

    Down: an echo is as short as RTT - J within J/4 with at least 1/32: of two directions that vary evenly by J/2 each
    (netem) (J/4)^2 / (2 J^2) = 1/32; by whole milliseconds (VDE) 1/25 for 2 + 2, and 1/17 for 8 in one direction. That
    none of 600 is: (31/32)^600 < 1e-8.

    Up: an echo takes more than RTT + J/2 with at least 3/25 (by whole milliseconds, 2 + 2; 1/8 where two directions
    vary evenly, 4/17 for 8 in one) and, with what a wire adds by itself, at most 5/17. Fewer than one in twenty of 600:
    Chernoff's bound is below 3e-8. More than 45 in 100 in each of 6 looks without any noise: below 1e-13. So is more
    than one in ten above RTT + J and the wire's own time in each of them, where there should be none.
    """
    asked = {site: quality for site, quality in ASKED.items() if quality.jitter_ms}
    with ThreadPoolExecutor(len(asked)) as pool:
        looks = dict(
            zip(
                asked,
                pool.map(lambda site: [echoes(person, site, ECHOES, 0.02) for _ in range(LOOKS)], asked),
                strict=True,
            )
        )
    errs = len(asked) * ((31 / 32) ** (LOOKS * ECHOES) + tail(LOOKS * ECHOES, 3 / 25, 1 / 20))
    errs += len(asked) * tail(ECHOES, 5 / 17, 0.45) ** LOOKS
    assert errs < ERROR
    # What a wire adds by itself is a fifth at most, as its delays are promised; its clock of milliseconds lets some
    # packets go half of one too early.
    for site, quality in asked.items():
        every = [one for look in looks[site] for one in look]
        assert len(every) == LOOKS * ECHOES, site
        rtt_ms, jitter_ms = quality.rtt_ms, quality.jitter_ms
        shortest_ms, own_ms = min(every), 0.2 * rtt_ms
        assert abs(shortest_ms - (rtt_ms - jitter_ms)) <= jitter_ms / 4 + 0.5, (site, shortest_ms)
        up = [sum(one > rtt_ms + jitter_ms / 2 for one in look) / ECHOES for look in looks[site]]
        assert sum(up) / LOOKS >= 1 / 20, (site, up)
        assert min(up) <= 0.45, (site, up)
        above = [sum(one > rtt_ms + jitter_ms + own_ms for one in look) / ECHOES for look in looks[site]]
        assert min(above) <= 0.1, (site, above)


def test_links_have_the_requested_loss(person: Person) -> None:
    """An echo is lost with 1 - (1 - loss)^2, each by itself; Chernoff's bound for 3000 of them is within the tolerance.

    10 % in each direction: 0.19 of the echoes, within 0.04: exp(-3000 KL(0.23, 0.19)) + exp(-3000 KL(0.15, 0.19)) =
    exp(-14.8) + exp(-16.5) = 4e-7. 2 %: 0.0396, within 0.025: 1e-9. A link without loss has no chance in it.
    """
    lost = {site: 1 - (1 - ASKED[site].loss_percent / 100) ** 2 for site in LOSS_TOLERANCE}
    errs = sum(
        tail(LOSS_ECHOES, lost[site], lost[site] + way * tolerance)
        for site, tolerance in LOSS_TOLERANCE.items()
        for way in (1, -1)
    )
    assert errs < ERROR
    with ThreadPoolExecutor(len(lost)) as pool:
        found = dict(
            zip(
                lost,
                pool.map(lambda site: 1 - len(echoes(person, site, LOSS_ECHOES, 0.004)) / LOSS_ECHOES, lost),
                strict=True,
            )
        )
    for site, tolerance in LOSS_TOLERANCE.items():
        assert abs(found[site] - lost[site]) <= tolerance, (site, found[site], lost[site])


def test_an_impossible_link_is_refused_before_any_change(person: Person, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    text = (person.folder / "asked.toml").read_text(encoding="utf-8")
    file.write_text(text.replace("jitter_ms = 4", "jitter_ms = 21"), encoding="utf-8")
    refused = person.run("lab", "up", "--bare", "--topology", str(file), "--name", "odd")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {file}: link 1: jitter_ms: must be at most rtt_ms, which is 20, is 21")
    assert "odd" not in person.check_output("lab", "status", "--json")
