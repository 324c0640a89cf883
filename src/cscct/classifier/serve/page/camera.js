// Photos from a camera, in a dialog.

import { announce, byId, plural } from "./dom.js";

let take = () => {};
let taken = 0;
let stream = null;

export function setUpCamera() {
  byId("camera-take").addEventListener("click", capture);
  byId("camera-close").addEventListener("click", () => byId("camera").close());
  byId("camera").addEventListener("close", stop);
}

/** Connects a button that opens the camera. ready: whether it may be opened now. onTake: called with a list of one file. */
export function cameraButton(button, onTake, ready = () => true) {
  button.hidden = !navigator.mediaDevices; // browsers allow it only on this machine and with https
  button.addEventListener("click", () => {
    if (!ready()) return;
    take = onTake;
    open();
  });
}

async function open() {
  taken = 0;
  show("Waiting for the camera…");
  byId("camera-take").disabled = true;
  byId("camera").showModal();
  try {
    const opened = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1920 } } });
    stream = opened;
    if (!byId("camera").open) return stop();
    byId("camera-video").srcObject = opened;
    await byId("camera-video").play();
    byId("camera-take").disabled = false;
    byId("camera-take").focus();
    show("");
  } catch (error) {
    show(error.name === "NotAllowedError" ? "The browser does not allow the camera: allow it in the settings of the page." : `The camera cannot be used: ${error.message}`);
  }
}

const show = (text) => (byId("camera-text").textContent = text);

function stop() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  byId("camera-video").srcObject = null;
}

async function capture() {
  const video = byId("camera-video");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext("2d").drawImage(video, 0, 0);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
  taken += 1;
  const now = new Date();
  const two = (number) => String(number).padStart(2, "0");
  const when = [now.getFullYear(), two(now.getMonth() + 1), two(now.getDate())].join("-");
  const file = new File([blob], `camera ${when} ${two(now.getHours())}.${two(now.getMinutes())}.${two(now.getSeconds())} ${taken}.jpg`, { type: "image/jpeg" });
  show(`${plural(taken, "photo")} taken`);
  announce(`${plural(taken, "photo")} taken.`);
  take([{ file, folder: "", path: file.name }]);
}
