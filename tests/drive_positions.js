// Sets the page's controls and replaces its content by what it then shows, as JSON. The first answer
// is what it shows when it is opened.
const opened = JSON.parse($("numbers").textContent);
const answers = SETTINGS.map(changes => {
  document.querySelector("form").reset();
  for (const [id, value] of Object.entries({ ...changes, distance: changes.distance ?? 12 })) {
    $(id).value = value;
    $(id).dispatchEvent(new Event("input", { bubbles: true }));
  }
  return { ...JSON.parse($("numbers").textContent),
           tip: ["x2", "y2"].map(name => $("tip-now").getAttribute(name) / 95) };
});
document.body.innerHTML = `<pre id="answers">${JSON.stringify([opened, ...answers])}</pre>`;
