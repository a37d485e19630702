"""Property tests draw the same examples in each run, so that a change is to blame for what a run finds.

``pytest tests/property/checkers/test_random_histories.py --hypothesis-profile=hunt`` draws more, others each time.
"""

from hypothesis import settings

# a deadline would judge the machine
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("hunt", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("same")
