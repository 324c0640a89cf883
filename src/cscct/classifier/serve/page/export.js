// Download of the model as one file for other programs.

import { api } from "./api.js";
import { announce, byId, saveAs } from "./dom.js";

export function setUpExport() {
  byId("export").addEventListener("click", async () => {
    const format = byId("export-format").value;
    const text = byId("export-text");
    byId("export").disabled = true;
    text.classList.remove("problem");
    text.textContent = "Exporting and checking the model…";
    try {
      const blob = await api.export(format);
      saveAs(blob, `${byId("model-name").textContent}.${format}`);
      text.textContent = `Exported: ${(blob.size / 1e6).toFixed(1)} MB.`;
    } catch (error) {
      text.classList.add("problem");
      text.textContent = error.message;
    }
    announce(text.textContent);
    byId("export").disabled = false;
    if (document.activeElement === document.body) byId("export").focus();
  });
}
