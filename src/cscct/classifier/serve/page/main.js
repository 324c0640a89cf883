// Sets up the page, and polls for changes that other tabs and programs make.

import { api } from "./api.js";
import { setUpCamera } from "./camera.js";
import { markOutdated, setUpClassify, showCorrections } from "./classify.js";
import { notice } from "./dom.js";
import { ignoreOtherDrops } from "./drop.js";
import { setUpExport } from "./export.js";
import { setUpManage } from "./manage.js";
import { showMap } from "./map.js";
import { setUpPhotos, showPhotos } from "./photos.js";
import { setUpClasses, showModel } from "./results.js";
import { setUpTeach, showJob, showStaged } from "./teach.js";
import { setUpVersions, showVersions } from "./versions.js";
import { setUpViewer } from "./viewer.js";
import { setUpWhy } from "./why.js";

const POLL_INTERVAL = 2000; // milliseconds
const LEARNING_INTERVAL = 400; // while a learning step is running
let version = null;
let drawn = "";
let timer = 0;
let wasRunning = false;
let trouble = null;
let lost = false; // the server did not respond

async function refresh() {
  try {
    const model = await api.model();
    if (JSON.stringify(model) === drawn) return; // keeps the focus
    drawn = JSON.stringify(model);
    showModel(model);
    markOutdated(model.version);
    showVersions(model);
    notice(model.trouble ?? "");
    if (model.version !== version) await Promise.all([showMap(model), showPhotos(model)]);
    version = model.version;
  } catch (error) {
    notice(error.message);
  }
}

const refreshStaged = () => showStaged().catch((error) => notice(error.message));

/** Shows what changed on the server, and again after a while. */
async function follow() {
  clearTimeout(timer);
  let running = false;
  if (!document.hidden)
    try {
      const state = await api.state();
      running = state.job.state === "running";
      const ended = showJob(state.job);
      if (state.version !== version) await refresh();
      if (lost || state.trouble !== trouble) notice(state.trouble ?? "");
      trouble = state.trouble;
      await showStaged(ended || running !== wasRunning ? null : state.staged_revision);
      wasRunning = running;
      lost = false;
    } catch (error) {
      notice(error.message);
      lost = true;
    }
  clearTimeout(timer);
  timer = setTimeout(follow, running ? LEARNING_INTERVAL : POLL_INTERVAL);
}

/** Also refreshes the staged photos, because their "new" badges depend on the version. */
async function refreshAll() {
  await refresh();
  await refreshStaged();
}

ignoreOtherDrops();
setUpClassify(refreshStaged);
setUpVersions(refreshAll);
setUpManage(refreshAll);
setUpClasses();
setUpPhotos(refreshAll);
setUpViewer();
setUpCamera();
setUpWhy();
setUpExport();
setUpTeach(follow, showCorrections);
await refreshAll();
document.addEventListener("visibilitychange", follow);
await follow();
