// Lists of `cscct suggest` that are dropped together with their photos.

/** Divides the fields of a line of CSV. */
function fields(line) {
  return [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].slice(0, -1).map(([, field]) => (field.startsWith('"') ? field.slice(1, -1).replaceAll('""', '"') : field));
}

/** Returns the names of the photos in a list, most useful first; null if the text is not such a list. */
export function listedPhotos(text) {
  let entries;
  try {
    entries = JSON.parse(text);
  } catch {
    const [head, ...lines] = text.split(/\r?\n/).filter(Boolean).map(fields);
    entries = lines.map((line) => Object.fromEntries(head.map((name, i) => [name, line[i]])));
  }
  if (!Array.isArray(entries) || !entries.length || !entries.every((entry) => typeof entry?.image === "string")) return null;
  return entries.filter(({ error }) => !error).map(({ image }) => image.replaceAll("\\", "/"));
}

/**
 * Selects the photos of a list among dropped files {file, path}, in the order of the list. A photo belongs to an entry if
 * one path ends with the other. Without a list, returns all files. missing: number of listed photos that were not dropped.
 */
export async function suggested(selected) {
  const isList = ({ file }) => /\.(json|csv)$/i.test(file.name);
  const photos = selected.filter((entry) => !isList(entry));
  for (const { file } of selected.filter(isList)) {
    const names = listedPhotos(await file.text());
    if (!names) throw new Error(`${file.name} is not a list of cscct suggest: write one with --json or --csv.`);
    const ends = (long, short) => long === short || long.endsWith(`/${short}`);
    const matches = names.map((name) => photos.find(({ path }) => ends(name, path) || ends(path, name)));
    const listed = matches.filter(Boolean);
    if (!listed.length) throw new Error(`Drop ${file.name} together with its photos, or start the server with --queue ${file.name}.`);
    return { photos: listed, ranked: true, missing: matches.length - listed.length };
  }
  return { photos, ranked: false, missing: 0 };
}
