// JSON as collapsible text. Nothing in it is interpreted as markup.

import { useState } from "preact/hooks";
import { Copy } from "./basics";

const LONG = 300;
const DEEP = 2;
const MANY = 200;

export function Json({ value, label }: { value: unknown; label: string }) {
  return (
    <div class="json">
      <Copy text={JSON.stringify(value, null, 2) ?? "null"} what={label} label="Copy" />
      <pre tabIndex={0} role="group" aria-label={label}>
        <Value value={value} depth={0} />
      </pre>
    </div>
  );
}

function Value({ value, depth }: { value: unknown; depth: number }) {
  if (typeof value === "string") return <Text text={value} />;
  if (value === null || typeof value !== "object") return <span class="json-plain">{String(value)}</span>;
  const isList = Array.isArray(value);
  const members = Object.entries(value as Record<string, unknown>);
  if (!members.length) return <>{isList ? "[]" : "{}"}</>;
  return (
    <details open={depth < DEEP && members.length <= MANY}>
      <summary>
        {isList ? "[" : "{"}
        <span class="soft"> {members.length} </span>
        {isList ? "]" : "}"}
      </summary>
      {members.slice(0, MANY).map(([name, each]) => (
        <div key={name} class="json-line">
          {!isList && <span class="json-name">{name}: </span>}
          <Value value={each} depth={depth + 1} />
        </div>
      ))}
      {members.length > MANY && <div class="soft json-line">… {members.length - MANY} more; copy it to see all</div>}
    </details>
  );
}

function Text({ text }: { text: string }) {
  const [isWhole, setWhole] = useState(false);
  if (text.length <= LONG || isWhole) return <span class="json-text">{JSON.stringify(text)}</span>;
  return (
    <span class="json-text">
      {JSON.stringify(text.slice(0, LONG)).slice(0, -1)}…
      <button type="button" class="small" onClick={() => setWhole(true)}>
        {text.length.toLocaleString("en")} characters
      </button>
    </span>
  );
}
