// The text that a running job emits, as it comes.

import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Chunk, JobText } from "../wire";
import "./livetext.css";

export interface EmittedText {
  readonly text: string;
  /** How often it was restarted. */
  readonly restarts: number;
}

export const NO_TEXT: EmittedText = { text: "", restarts: 0 };

export function textSoFar(read: JobText): EmittedText {
  return { text: read.text, restarts: 0 };
}

/** The text after a chunk. The one with number 1 restarts it. */
export function withChunk(before: EmittedText, chunk: Chunk): EmittedText {
  if (chunk.number > 1) return { ...before, text: before.text + chunk.text };
  return { text: chunk.text, restarts: before.restarts + 1 };
}

/**
 * The text in a box that follows its end, unless the reader has scrolled up. Text comes twenty times a second and may
 * be long, so it is appended to one node, and nothing is rendered again.
 */
export function LiveText({ emitted }: { emitted: Signal<EmittedText> }) {
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const node = element.appendChild(document.createTextNode(""));
    let restarts = -1;
    const stop = emitted.subscribe((now) => {
      if (now.restarts === restarts) node.appendData(now.text.slice(node.length));
      else node.data = now.text;
      restarts = now.restarts;
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    });
    return () => {
      stop();
      node.remove();
    };
  }, [emitted]);
  const scrolled = () => {
    const element = box.current;
    if (element) isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
  };
  return (
    <pre class="live-text" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-label="Text" aria-live="polite" />
  );
}
