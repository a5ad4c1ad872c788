// What the copy button takes from a Python session: the code alone, without prompts and results.
document.addEventListener("click", (event) => {
  const code = event.target.closest?.("button")?.closest(".highlight")?.querySelector("code");
  if (!code?.querySelector(".gp")) return;
  const copy = code.cloneNode(true);
  for (const each of copy.querySelectorAll(".gp, .go, .gt, .gr")) each.remove();
  const lines = copy.textContent.split("\n").filter((line) => line.trim());
  // after the theme, which takes the whole text
  setTimeout(() => navigator.clipboard.writeText(lines.join("\n") + "\n"), 50);
});
