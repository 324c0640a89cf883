// Dropped and selected files. Folders are read recursively, and their files are labelled as `cscct learn` labels them.

const IMAGE = /\.(jpe?g|png|bmp|gif|webp|ppm|tiff?|heic|heif|avif)$/i;
const LIST = /\.(json|csv)$/i;
const SYSTEM_FOLDERS = ["__MACOSX", "@eaDir"];
const TRAIN = ["train", "training"];
const EVALUATION = ["val", "valid", "validation", "test", "testing"];

/** Calls take with the result of select: a list of {file, folder, path}; folder is the class, or "" for files outside of a folder; path names the file to the user. */
export function acceptFiles(zone, inputs, take, select) {
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
    const selected = entries.length ? await readAll(entries, []) : files.map((file) => ({ file, path: [] }));
    if (selected.length) take(select(selected));
  });
  for (const input of inputs)
    input.addEventListener("change", () => {
      const selected = [...input.files].map((file) => ({ file, path: file.webkitRelativePath.split("/").slice(0, -1) }));
      input.value = ""; // allows selecting the same file again
      const visible = selected.filter(({ file, path }) => ![...path, file.name].some(ignored));
      if (visible.length) take(select(visible));
    });
}

const ignored = (name) => name.startsWith(".") || SYSTEM_FOLDERS.includes(name);

/**
 * Labels files with paths, lists of folder names. Several folders are classes. A single folder is a class if it contains
 * images; otherwise the folders in it are classes, or, if they are train, val and test, the folders in train.
 */
export function labelled(files) {
  const folders = (depth) => new Set(files.filter(({ path }) => path.length > depth).map(({ path }) => path[depth]));
  const single = folders(0).size === 1 && files.every(({ path }) => path.length > 0);
  if (!single || files.some(({ file, path }) => path.length === 1 && IMAGE.test(file.name)))
    return files.map((entry) => named(entry, 0));
  const inside = files.filter(({ path }) => path.length > 1);
  const is = (names) => (name) => names.includes(name.toLowerCase());
  const parts = [...folders(1)];
  const images = inside.some(({ path }) => path.length === 2 && is(TRAIN)(path[1]));
  const divided = !images && parts.some(is(TRAIN)) && (parts.some(is(EVALUATION)) || parts.length === 1);
  if (!divided) return inside.map((entry) => named(entry, 1));
  return inside.filter(({ path }) => is(TRAIN)(path[1]) && path.length > 2).map((entry) => named(entry, 2));
}

/** Selects all photos to classify, wherever they are, and lists of photos. Other files of folders are left out, as by `cscct predict`. */
export function withoutClasses(files) {
  return files.filter(({ file, path }) => !path.length || IMAGE.test(file.name) || LIST.test(file.name)).map((entry) => named(entry, 0));
}

const named = ({ file, path }, depth) => ({ file, folder: path[depth] ?? "", path: [...path, file.name].join("/") });

/** Prevents the browser from opening files dropped outside of a zone. */
export function ignoreOtherDrops() {
  for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
}

async function readAll(entries, path) {
  const files = [];
  for (const entry of entries) {
    if (ignored(entry.name)) continue;
    if (entry.isDirectory) files.push(...(await readAll(await children(entry), [...path, entry.name])));
    else files.push({ file: await new Promise((done, fail) => entry.file(done, fail)), path });
  }
  return files;
}

async function children(directory) {
  const reader = directory.createReader();
  const entries = [];
  for (;;) {
    const batch = await new Promise((done, fail) => reader.readEntries(done, fail)); // returns about 100 entries per call
    if (!batch.length) return entries;
    entries.push(...batch);
  }
}
