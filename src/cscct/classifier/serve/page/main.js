// Sets up the page and polls for new versions.

import { api } from "./api.js";
import { setUpClassify } from "./classify.js";
import { notice } from "./dom.js";
import { ignoreOtherDrops } from "./drop.js";
import { setUpManage } from "./manage.js";
import { showMap } from "./map.js";
import { showModel } from "./results.js";
import { setUpTeach, showStaged } from "./teach.js";
import { setUpVersions, showVersions } from "./versions.js";

const POLL_INTERVAL = 10_000; // milliseconds
let version = null;
let drawn = "";

async function refresh() {
  try {
    const model = await api.model();
    if (JSON.stringify(model) === drawn) return; // keeps the focus
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

/** Also refreshes the staged photos, because their "new" badges depend on the version. */
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
setInterval(() => document.hidden || refresh(), POLL_INTERVAL);
