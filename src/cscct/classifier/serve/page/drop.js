// Files that are dropped, picked or pasted. Folders are read too: each file comes with the name of its folder.

/** Calls take with a list of {file, folder}; folder is "" for a single file. */
export function acceptFiles(zone, input, take) {
  let depth = 0;
  const mark = (change) => {
    depth = Math.max(0, depth + change);
    zone.classList.toggle("over", depth > 0);
  };
  zone.addEventListener("dragenter", () => mark(1));
  zone.addEventListener("dragleave", () => mark(-1));
  zone.addEventListener("dragover", (event) => event.preventDefault());
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    mark(-depth);
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const files = [...event.dataTransfer.files];
    const found = entries.length ? await readAll(entries, "") : files.map((file) => ({ file, folder: "" }));
    if (found.length) take(found);
  });
  input.addEventListener("change", () => {
    const found = [...input.files].map((file) => ({ file, folder: "" }));
    input.value = ""; // so that the same file can be picked again
    if (found.length) take(found);
  });
}

/** A file dropped beside a zone must not replace the page. */
export function ignoreOtherDrops() {
  for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
}

async function readAll(entries, folder) {
  const found = [];
  for (const entry of entries) {
    if (entry.name.startsWith(".")) continue;
    if (entry.isDirectory) found.push(...(await readAll(await children(entry), entry.name)));
    else found.push({ file: await new Promise((done, fail) => entry.file(done, fail)), folder });
  }
  return found;
}

async function children(directory) {
  const reader = directory.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail)); // about a hundred at a time
    if (!some.length) return found;
    found.push(...some);
  }
}
