"""One settings file for each unfinished run of a plan, for batch systems: `split_plan.py plan.json FOLDER`.

The plan is what `cscct sweep` and `cscct reproduce` print with `--dry-run --json`. FOLDER gets NAME.yaml for each run,
and two lists of names. Runs in rest.txt take their first task from a run in first.txt, so they come afterwards.
"""

import json
import sys
from pathlib import Path

plan, folder = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
names: dict[str, list[str]] = {"first.txt": [], "rest.txt": []}
seen = set()
for run in plan["runs"]:
    if run["state"] != "finished" and not (folder / f"{run['name']}.yaml").exists():
        settings = json.dumps(run["settings"], indent=1)  # JSON is YAML too
        (folder / f"{run['name']}.yaml").write_text(settings, encoding="utf-8")
        names["rest.txt" if run["first_task"] in seen else "first.txt"].append(run["name"])
        seen.add(run["first_task"])
for file, lines in names.items():
    (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"runs in {file}: {len(lines)}")
