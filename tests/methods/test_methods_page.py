"""docs/methods.md lists every built-in method and is current."""

import runpy
from pathlib import Path

from cscct.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current() -> None:
    module = runpy.run_path(str(DOCS / "methods_reference.py"))
    text = module["page"]()
    assert (DOCS / "methods.md").read_text(encoding="utf-8") == text, "run `python docs/methods_reference.py`"
    assert set(module["SOURCES"]) == set(METHODS)
    kept = {name: module["kept"](METHODS[name]) for name in METHODS}
    assert kept["finetune"] == "nothing"
    assert kept["der++"] == "exemplars with logits"
    assert kept["lwf"] == "teacher"
    assert kept["ewc"] == "state of `ewc`"
    assert kept["der"] == "exemplars, state of `auxiliary_classifier`, growing network"
    assert kept["joint"] == "all images"
