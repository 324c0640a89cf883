// Puts the parts together, and notices versions that came from elsewhere.

import { api } from "./api.js";
import { setUpClassify } from "./classify.js";
import { notice } from "./dom.js";
import { ignoreOtherDrops } from "./drop.js";
import { setUpManage } from "./manage.js";
import { showMap } from "./map.js";
import { showModel } from "./results.js";
import { setUpTeach, showStaged } from "./teach.js";
import { setUpVersions, showVersions } from "./versions.js";

const LOOK = 10_000; // milliseconds between looks for a new version
let version = null;
let drawn = "";

async function refresh() {
  try {
    const model = await api.model();
    if (JSON.stringify(model) === drawn) return; // what has the focus stays
    drawn = JSON.stringify(model);
    showModel(model);
    showVersions(model);
    notice(model.trouble ?? "");
    if (model.version !== version) await showMap(model);
    version = model.version;
  } catch (error) {
    notice(error.message);
  }
}

const refreshStaged = () => showStaged().catch((error) => notice(error.message));

/** What waits too: whether its classes are new depends on the version. */
async function refreshAll() {
  await refresh();
  await refreshStaged();
}

ignoreOtherDrops();
setUpClassify(refreshStaged);
setUpVersions(refreshAll);
setUpManage(refreshAll);
setUpTeach(refresh);
await refreshAll();
setInterval(() => document.hidden || refresh(), LOOK);
