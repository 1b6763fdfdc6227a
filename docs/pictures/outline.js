// The outline of a page: a line for each element that has a meaning, indented by depth, without data.
// Siblings that look the same count once, so the number of rows, options or points does not matter.
() => {
  const TEXTS = new Set(["h1", "h2", "h3", "th", "label", "legend", "nav", "summary", "dt"]);
  const SILENT = new Set(["script", "style", "link", "meta", "svg", "canvas", "option", "br", "time"]);
  const ROWS = new Set(["tbody", "ul", "ol"]);

  const words = (element) => (element.innerText || "").replace(/\s+/g, " ").trim();
  const name = (element, tag) => {
    if (tag === "button" || (tag === "a" && element.closest("nav"))) return words(element); // other links may be data
    if (TEXTS.has(tag) && !element.querySelector("a, button, input, table")) return words(element);
    return "";
  };

  const read = (element, depth) => {
    const tag = element.tagName.toLowerCase();
    if (SILENT.has(tag) || element.hidden) return [];
    const inner = ROWS.has(tag) ? [] : [...element.children].flatMap((child) => read(child, depth + 1));
    const role = element.getAttribute("role");
    const label = role && role !== "img" ? element.getAttribute("aria-label") : null;
    const text = name(element, tag);
    if (["div", "span", "p", "b", "small", "code"].includes(tag) && !role) return inner;
    const own = [tag, role && `role=${role}`, label && `label=${label}`, text && `"${text}"`].filter(Boolean).join(" ");
    return [`${"  ".repeat(depth)}${own}`, ...inner];
  };

  const lines = read(document.body, 0);
  return [...new Set(lines)];
};
