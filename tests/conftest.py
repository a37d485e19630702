"""Property tests draw the same examples in each run, so that a change is to blame for what a run finds.

``pytest tests/test_checkers_random.py --hypothesis-profile=hunt`` draws others each time, and more of them.
"""

from hypothesis import settings

# a deadline would judge the machine
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("hunt", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("same")
